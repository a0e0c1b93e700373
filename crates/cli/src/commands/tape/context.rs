//! `capstan tape context`: what the model got.

use capstan_host::calls::{ModelCalls, RecordedCall};
use capstan_protocol::RunId;

use super::super::print_json;
use super::source::Scope;
use crate::{Exit, Failure};

/// How many runs are looked at to find the newest one of a workspace.
const LOOKED_AT: usize = 1000;

pub(super) async fn context(scope: &Scope<'_>, run: Option<String>, call: Option<u32>) -> Result<(), Failure> {
    let tapes = scope.tapes()?;
    let unknown = |message: String| Failure::new("run-unknown", message, Exit::Usage);
    let (run_id, calls) = match run {
        Some(run) => {
            let run_id = RunId::new(run);
            let calls = ModelCalls { tapes }.of_run(&run_id).await?;
            let calls = calls.ok_or_else(|| unknown(format!("there is no run {run_id}")))?;
            (run_id, calls)
        }
        None => newest(scope).await?.ok_or_else(|| unknown("no run here has called a model yet".to_owned()))?,
    };
    let Some(number) = call else { return print_json(&calls) };
    match calls.iter().find(|recorded| recorded.call == number) {
        Some(recorded) => print_json(recorded),
        None => Err(unknown(format!("run {run_id} made {} model calls, not {number}", calls.len()))),
    }
}

/// The newest run of this workspace that called a model, among the newest of all.
async fn newest(scope: &Scope<'_>) -> Result<Option<(RunId, Vec<RecordedCall>)>, Failure> {
    let tapes = scope.tapes()?;
    let workspace = scope.workspace().await?;
    for run in tapes.store().runs(LOOKED_AT).await? {
        let tape = tapes.record(&run.tape).await?;
        if tape.and_then(|tape| tape.workspace).as_ref() != Some(&workspace) {
            continue;
        }
        let calls = ModelCalls { tapes }.of_run(&run.run_id).await?.unwrap_or_default();
        if !calls.is_empty() {
            return Ok(Some((run.run_id, calls)));
        }
    }
    Ok(None)
}
