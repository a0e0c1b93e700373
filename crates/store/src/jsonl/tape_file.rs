//! A tape file as a whole.

use std::path::Path;

use capstan_tape::{Entry, StoreError};

use super::line::{is_blank, parse_line};

/// The entries of a tape file.
#[derive(Debug, Clone, PartialEq)]
pub struct TapeFile {
    /// The entries, as they stand in the file.
    pub entries: Vec<Entry>,
    /// The last line, if it cannot be read.
    pub torn_line: Option<TornLine>,
}

/// A last line that was not written to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornLine {
    /// Which line it is, from 1 on.
    pub line_number: usize,
    /// How many bytes it has.
    pub byte_len: usize,
    /// What there is of it.
    pub text: String,
}

/// Reads a tape file anywhere, without changing it.
///
/// A last line that cannot be read is reported, any other is an error that names it. Ids are given as they are.
pub fn read_file(path: impl AsRef<Path>) -> Result<TapeFile, StoreError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|error| StoreError::io(format!("read {}", path.display()), error))?;
    parse_tape_file(&bytes).map_err(|broken| broken.into_error(path))
}

/// A line that cannot be read and is not the last one.
pub(super) struct BrokenLine {
    pub(super) line_number: usize,
    pub(super) error: serde_json::Error,
}

impl BrokenLine {
    pub(super) fn into_error(self, path: &Path) -> StoreError {
        StoreError::corrupt(path.display().to_string(), format!("line {}: {}", self.line_number, self.error))
    }
}

/// The entries of a file's content.
pub(super) fn parse_tape_file(bytes: &[u8]) -> Result<TapeFile, BrokenLine> {
    let mut entries = Vec::new();
    let mut broken: Option<(BrokenLine, &[u8])> = None;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !is_blank(line)) {
        if let Some((broken, _)) = broken {
            return Err(broken);
        }
        match parse_line(line) {
            Ok(entry) => entries.push(entry),
            Err(error) => broken = Some((BrokenLine { line_number: index + 1, error }, line)),
        }
    }
    // A line that ends, and is no entry, was written that way: it is damage, and nobody's crash.
    if let Some((whole, _)) = broken.take_if(|(broken, _)| bytes.ends_with(b"\n") && !broken.error.is_eof()) {
        return Err(whole);
    }
    let torn = broken.map(|(broken, line)| TornLine {
        line_number: broken.line_number,
        byte_len: line.len(),
        text: String::from_utf8_lossy(line).into_owned(),
    });
    Ok(TapeFile { entries, torn_line: torn })
}
