//! `capstan tape context`: what the model got.

use capstan_host::runs::model_call_log::{ModelCallReader, RecordedModelCall};
use capstan_protocol::{ErrorCode, RunId};

use super::super::print_json;
use super::super::runs::find_run;
use super::source::HomeTapes;
use crate::CommandError;

/// How many runs are looked at to find the newest one of a workspace.
const MAX_RUNS_SEARCHED: usize = 1000;

pub(super) async fn print_context(
    scope: &HomeTapes<'_>,
    run: Option<String>,
    call: Option<u32>,
) -> Result<(), CommandError> {
    let tapes = scope.tapes()?;
    let unknown = |message: String| CommandError::new(ErrorCode::RunUnknown, message);
    let (run_id, calls) = match run {
        Some(run) => {
            let run_id = find_run(tapes.store().as_ref(), &run).await?.run_id;
            let calls = ModelCallReader { tapes }.read_run(&run_id).await?.unwrap_or_default();
            (run_id, calls)
        }
        None => newest_run_with_calls(scope).await?.ok_or_else(|| {
            let none = unknown("no run here has called a model yet".to_owned());
            none.with_hint("send a message first, as in `capstan run hello`; --workspace names another workspace")
        })?,
    };
    let Some(number) = call else { return print_json(&calls) };
    let Some(recorded) = calls.iter().find(|recorded| recorded.call == number) else {
        let missing = unknown(format!("there is no model call {number} of run {run_id}, which made {}", calls.len()));
        return Err(missing.with_hint("calls are numbered from 1 on; leave --call out to see all of them"));
    };
    print_json(recorded)
}

/// The newest run of this workspace that called a model, among the newest of all.
async fn newest_run_with_calls(scope: &HomeTapes<'_>) -> Result<Option<(RunId, Vec<RecordedModelCall>)>, CommandError> {
    let tapes = scope.tapes()?;
    let workspace = scope.workspace_id().await?;
    for run in tapes.store().runs(MAX_RUNS_SEARCHED).await? {
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
