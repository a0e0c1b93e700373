//! `capstan tape context`.

use capstan_host::model_call_log::{ModelCallReader, RecordedModelCall};
use capstan_protocol::{ErrorCode, RunId};

use super::super::print_json;
use super::super::runs::find_run;
use super::source::HomeTapes;
use crate::CommandError;

/// Number of runs searched for the newest one of a workspace.
const MAX_RUNS_SEARCHED: usize = 1000;

pub(super) async fn print_context(
    home: &HomeTapes<'_>,
    run: Option<String>,
    call: Option<u32>,
) -> Result<(), CommandError> {
    let tapes = home.tapes()?;
    let unknown = |message: String| CommandError::new(ErrorCode::RunUnknown, message);
    let (run_id, calls) = match run {
        Some(run) => {
            let run_id = find_run(tapes.store().as_ref(), &run).await?.run_id;
            let calls = ModelCallReader { tapes }.read_run(&run_id).await?.unwrap_or_default();
            (run_id, calls)
        }
        None => newest_run_with_calls(home).await?.ok_or_else(|| {
            let missing = unknown("no run of this workspace has called a model yet".to_owned());
            missing.with_hint("send a message first, as in `capstan run hello`, or select a workspace with --workspace")
        })?,
    };
    let Some(number) = call else { return print_json(&calls) };
    let Some(call) = calls.iter().find(|call| call.call == number) else {
        let missing = unknown(format!("run {run_id} has no model call {number}; it made {}", calls.len()));
        return Err(missing.with_hint("calls are numbered from 1; omit --call for all of them"));
    };
    print_json(call)
}

/// The newest run of this workspace that called a model, among the last [`MAX_RUNS_SEARCHED`] runs.
async fn newest_run_with_calls(home: &HomeTapes<'_>) -> Result<Option<(RunId, Vec<RecordedModelCall>)>, CommandError> {
    let tapes = home.tapes()?;
    let workspace = home.workspace_id().await?;
    for run in tapes.store().run_page(None, MAX_RUNS_SEARCHED).await? {
        let tape = tapes.record(&run.tape).await?;
        if tape.and_then(|tape| tape.workspace).as_ref() != Some(&workspace) {
            continue;
        }
        let calls = ModelCallReader { tapes }.read_run(&run.run_id).await?.unwrap_or_default();
        if !calls.is_empty() {
            return Ok(Some((run.run_id, calls)));
        }
    }
    Ok(None)
}
