//! `capstan tape context`: what the model got.

use capstan_host::calls::ModelCalls;
use capstan_protocol::RunId;

use super::super::print_json;
use super::source::Scope;
use crate::{Exit, Failure};

pub(super) async fn context(scope: &Scope<'_>, run: Option<String>, call: Option<u32>) -> Result<(), Failure> {
    let tapes = scope.tapes()?;
    let unknown = |message: String| Failure::new("run-unknown", message, Exit::Usage);
    let run_id = if let Some(run) = run {
        RunId::new(run)
    } else {
        let newest = tapes.store().runs(1).await?.pop();
        newest.ok_or_else(|| unknown("there has been no run yet".to_owned()))?.run_id
    };
    let calls = ModelCalls { tapes }.of_run(&run_id).await?;
    let calls = calls.ok_or_else(|| unknown(format!("there is no run {run_id}")))?;
    let Some(number) = call else { return print_json(&calls) };
    match calls.iter().find(|recorded| recorded.call == number) {
        Some(recorded) => print_json(recorded),
        None => Err(unknown(format!("run {run_id} made {} model calls, not {number}", calls.len()))),
    }
}
