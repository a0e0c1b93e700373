//! `capstan tape verify`.

use super::super::{print, print_json};
use super::source::Scope;
use crate::{Exit, Failure};

pub(super) async fn verify(scope: &Scope<'_>, json: bool) -> Result<(), Failure> {
    let tapes = scope.tapes()?;
    let mut problems = tapes.store().verify().await?;
    if let Some(tape_store) = scope.tape_store()? {
        problems.extend(tape_store.verify().await?);
    }
    let count = tapes.list().await?.len();
    if json {
        print_json(&serde_json::json!({ "tapes": count, "problems": problems }))?;
    } else if problems.is_empty() {
        print(&format!("{count} tapes, no damage found"))?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = problems.iter().map(|problem| problem.message.clone()).collect();
    Err(Failure::new("tape-damaged", told.join("\n"), Exit::Store))
}
