//! `capstan tape export` and `capstan tape import`.

use std::path::Path;

use capstan_protocol::{EntryId, ErrorCode};
use capstan_store::jsonl;
use capstan_tape::{Batch, Fact, NewTape, StoreError, TapeSlice};

use super::super::{print, print_json_lines};
use super::checks;
use super::source::{HomeTapes, TapeSource, parse_tape_name, read_file};
use crate::CommandError;

pub(super) async fn export_tape(
    source: TapeSource,
    is_for_bub: bool,
    generation: Option<u32>,
) -> Result<(), CommandError> {
    let TapeSource { tapes, tape } = source;
    let mut entries = match generation {
        None => tapes.read(&tape, &TapeSlice::all()).await?,
        Some(number) => {
            checks::check_generation(&tapes, &tape, number).await?;
            tapes.read_generation(&tape, number, &TapeSlice::all()).await?
        }
    };
    if is_for_bub {
        entries = jsonl::to_bub_format(&entries);
    }
    print_json_lines(entries.iter().map(jsonl::format_line))
}

/// Maximum id of an imported entry: the largest integer that every JSON parser reads exactly, which also leaves enough ids
/// for new entries.
const MAX_IMPORTED_ENTRY_ID: EntryId = EntryId((1 << 53) - 1);

/// Imports a file in one commit, so that no partial tape remains after a failure.
pub(super) async fn import_tape(home: &HomeTapes<'_>, file: &Path, name: Option<String>) -> Result<(), CommandError> {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tape = parse_tape_name(&name.unwrap_or(stem))?;
    let entries = read_file(file)?;
    let count = entries.len();
    if count == 0 {
        let message = format!("{} has no entries", file.display());
        return Err(CommandError::new(ErrorCode::TapeFileUnreadable, message));
    }
    if let Some(entry) = entries.iter().find(|entry| entry.id > MAX_IMPORTED_ENTRY_ID) {
        let message = format!("entry {} of {} has an id above {MAX_IMPORTED_ENTRY_ID}", entry.id, file.display());
        return Err(CommandError::new(ErrorCode::TapeIdTooGreat, message));
    }
    let tapes = home.tapes()?;
    if tapes.record(&tape).await?.is_some() {
        return Err(StoreError::TapeExists { tape }.into());
    }
    checks::check_name_is_free(tapes, &tape).await?;
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    batch.push(Fact::ImportEntries { tape: tape.clone(), entries });
    tapes.commit(batch).await?;
    print(&format!("imported {count} entries as {tape}"))
}
