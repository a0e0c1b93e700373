//! `capstan tape export` and `capstan tape import`.

use std::path::Path;

use capstan_protocol::EntryId;
use capstan_store::jsonl;
use capstan_tape::{Batch, Fact, NewTape, Slice, StoreError};

use super::super::{print, print_lines};
use super::asked;
use super::source::{Scope, Source, name, read_file};
use crate::{Exit, Failure};

pub(super) async fn export(source: Source, legacy: bool, generation: Option<u32>) -> Result<(), Failure> {
    let Source { tapes, tape } = source;
    let mut entries = match generation {
        None => tapes.read(&tape, &Slice::all()).await?,
        Some(number) => {
            asked::check_generation(&tapes, &tape, number).await?;
            tapes.read_generation(&tape, number, &Slice::all()).await?
        }
    };
    if legacy {
        entries = jsonl::legacy(&entries);
    }
    print_lines(entries.iter().map(jsonl::write_line))
}

/// The greatest id that is imported: up to there every program reads a number of JSON as it is written, and there are
/// more ids left behind it than a tape will ever need.
const GREATEST_ID: EntryId = EntryId((1 << 53) - 1);

/// The whole file in one commit: a tape is there, or it is not.
pub(super) async fn import(scope: &Scope<'_>, file: &Path, named: Option<String>) -> Result<(), Failure> {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tape = name(&named.unwrap_or(stem))?;
    let entries = read_file(file)?;
    let count = entries.len();
    if count == 0 {
        let message = format!("{} has no entries", file.display());
        return Err(Failure::new("tape-file-unreadable", message, Exit::Usage));
    }
    if let Some(entry) = entries.iter().find(|entry| entry.id > GREATEST_ID) {
        let message = format!("entry {} of {} has an id above {GREATEST_ID}", entry.id, file.display());
        return Err(Failure::new("tape-id-too-great", message, Exit::Usage));
    }
    let tapes = scope.tapes()?;
    if tapes.record(&tape).await?.is_some() {
        return Err(StoreError::TapeExists { tape }.into());
    }
    asked::check_name(tapes, &tape).await?;
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
    batch.push(Fact::Import { tape: tape.clone(), entries });
    tapes.commit(batch).await?;
    print(&format!("imported {count} entries as {tape}"))
}
