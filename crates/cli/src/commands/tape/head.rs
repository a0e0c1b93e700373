//! `capstan tape head`, and the heads that `capstan tape verify` is given.

use std::path::Path;

use capstan_protocol::ErrorCode;
use capstan_tape::ChainHead;

use super::super::print_lines;
use super::source::{HomeTapes, TapeSource};
use crate::CommandError;

pub(super) async fn print_heads(home: &HomeTapes<'_>, name: Option<String>, json: bool) -> Result<(), CommandError> {
    let heads = if let Some(name) = name {
        let TapeSource { tapes, tape } = home.find_stored_tape(&name).await?;
        Vec::from_iter(tapes.chain_head(&tape).await?)
    } else {
        let records = home.tapes()?.list().await?.into_iter();
        records.map(|record| ChainHead { tape: record.name, id: record.head, hash: record.head_hash }).collect()
    };
    print_lines(heads.iter().map(|head| if json { serde_json::json!(head).to_string() } else { head.to_string() }))
}

/// Reads the heads in a file, one per line.
pub(super) fn read_heads(file: &Path) -> Result<Vec<ChainHead>, CommandError> {
    let usage = |message: String| CommandError::new(ErrorCode::Usage, message);
    let text =
        std::fs::read_to_string(file).map_err(|error| usage(format!("{} cannot be read: {error}", file.display())))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(index, line)| {
        line.parse().map_err(|error| usage(format!("{}, line {}: {error}", file.display(), index + 1)))
    });
    parsed.collect()
}
