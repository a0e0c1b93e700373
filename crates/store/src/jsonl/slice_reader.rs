//! Reader for a slice of a tape file, from the nearer end.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use capstan_protocol::EntryId;
use capstan_tape::{Entry, EntryOrder, StoreError, TapeSlice};

use super::backward_reader::BackwardLineReader;
use super::line::{is_blank, parse_line, peek_id};
use super::tail::corrupt_line_error;
use super::tape_file::BrokenLine;

/// Entries of a slice, with a flag for a skipped torn last line.
pub(super) struct SliceEntries {
    pub(super) entries: Vec<Entry>,
    pub(super) has_torn_line: bool,
}

/// Reads a slice. Slices that begin after an entry or are ordered newest first are read from the end of the file.
pub(super) fn read_slice(file: &File, path: &Path, slice: &TapeSlice) -> Result<SliceEntries, StoreError> {
    let after = slice.after.unwrap_or_default();
    match slice.order {
        EntryOrder::NewestFirst => read_backward(file, path, slice, slice.limit),
        EntryOrder::OldestFirst if after == EntryId(0) => read_forward(file, path, slice),
        EntryOrder::OldestFirst => {
            let mut found = read_backward(file, path, slice, None)?;
            found.entries.reverse();
            found.entries.truncate(slice.limit.unwrap_or(usize::MAX));
            Ok(found)
        }
    }
}

fn read_backward(
    file: &File,
    path: &Path,
    slice: &TapeSlice,
    limit: Option<usize>,
) -> Result<SliceEntries, StoreError> {
    let failed = |error| StoreError::io(format!("read {}", path.display()), error);
    let limit = limit.unwrap_or(usize::MAX);
    let mut lines = BackwardLineReader::new(file).map_err(failed)?;
    let mut found = SliceEntries { entries: Vec::new(), has_torn_line: false };
    let mut is_last = true;
    while found.entries.len() < limit
        && let Some(line) = lines.next_line().map_err(failed)?
    {
        if is_blank(&line.bytes) {
            continue;
        }
        let was_last = std::mem::replace(&mut is_last, false);
        let is_beyond = |id: EntryId| slice.up_to.is_some_and(|up_to| id > up_to);
        if !was_last && peek_id(&line.bytes).is_some_and(is_beyond) {
            continue;
        }
        match parse_line(&line.bytes) {
            Ok(entry) if slice.after.is_some_and(|after| entry.id <= after) => break,
            Ok(entry) if slice.contains(&entry) => found.entries.push(entry),
            Ok(_) => {}
            Err(_) if was_last => found.has_torn_line = true,
            Err(error) => return Err(corrupt_line_error(file, path, &line, &error)),
        }
    }
    Ok(found)
}

fn read_forward(mut file: &File, path: &Path, slice: &TapeSlice) -> Result<SliceEntries, StoreError> {
    let failed = |error| StoreError::io(format!("read {}", path.display()), error);
    let limit = slice.limit.unwrap_or(usize::MAX);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut reader = BufReader::new(file);
    let mut found = SliceEntries { entries: Vec::new(), has_torn_line: false };
    let mut broken: Option<BrokenLine> = None;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if found.entries.len() >= limit || reader.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        if is_blank(&line) {
            continue;
        }
        if let Some(broken) = broken {
            return Err(broken.into_error(path));
        }
        match parse_line(&line) {
            Ok(entry) if slice.contains(&entry) => found.entries.push(entry),
            Ok(_) => {}
            Err(error) => broken = Some(BrokenLine { line_number: number, error }),
        }
    }
    found.has_torn_line = broken.is_some();
    Ok(found)
}
