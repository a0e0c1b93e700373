//! `capstan tape verify`.

use super::super::{print, print_json};
use super::source::HomeTapes;
use crate::CommandError;
use capstan_protocol::ErrorCode;
use capstan_tape::ChainHead;

pub(super) async fn verify_tapes(home: &HomeTapes<'_>, heads: &[ChainHead], json: bool) -> Result<(), CommandError> {
    let tapes = home.tapes()?;
    let mut problems = tapes.verify().await?;
    for head in heads {
        problems.extend(tapes.check_head(head).await?);
    }
    let count = tapes.list().await?.len();
    if json {
        print_json(&serde_json::json!({ "tapes": count, "problems": problems }))?;
    } else if problems.is_empty() {
        print(&format!("tapes: {count}, no damage found"))?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    let lines = problems.iter().map(|problem| match &problem.tape {
        Some(tape) => format!("tape {tape}: {}", problem.message),
        None => problem.message.clone(),
    });
    Err(CommandError::new(ErrorCode::TapeDamaged, lines.collect::<Vec<_>>().join("\n")))
}
