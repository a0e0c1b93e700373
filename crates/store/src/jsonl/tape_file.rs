//! Reader for a whole tape file.

use std::path::Path;

use capstan_tape::{Entry, StoreError};

use super::line::{is_blank, parse_line};

/// Content of a tape file.
#[derive(Debug, Clone, PartialEq)]
pub struct TapeFile {
    /// Entries in the order of the file.
    pub entries: Vec<Entry>,
    /// Last line, if it is torn.
    pub torn_line: Option<TornLine>,
}

/// Last line of a file that was not written completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornLine {
    /// Number of the line, from 1.
    pub line_number: usize,
    /// Length in bytes.
    pub byte_len: usize,
    /// Text of the line.
    pub text: String,
}

/// Reads any tape file, without changing it.
///
/// A torn last line is returned separately; any other line that cannot be parsed is an error that names it. Ids are not
/// checked.
pub fn read_file(path: impl AsRef<Path>) -> Result<TapeFile, StoreError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|error| StoreError::io(format!("read {}", path.display()), error))?;
    parse_tape_file(&bytes).map_err(|broken| broken.into_error(path))
}

/// Line that cannot be parsed.
pub(super) struct BrokenLine {
    pub(super) line_number: usize,
    pub(super) error: serde_json::Error,
}

impl BrokenLine {
    pub(super) fn into_error(self, path: &Path) -> StoreError {
        StoreError::corrupt(path.display().to_string(), format!("line {}: {}", self.line_number, self.error))
    }
}

/// Parses the content of a file.
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
    // A complete line that is no entry was not torn by a crash: the file is damaged.
    if let Some((damaged, _)) = broken.take_if(|(broken, _)| bytes.ends_with(b"\n") && !broken.error.is_eof()) {
        return Err(damaged);
    }
    let torn_line = broken.map(|(broken, line)| TornLine {
        line_number: broken.line_number,
        byte_len: line.len(),
        text: String::from_utf8_lossy(line).into_owned(),
    });
    Ok(TapeFile { entries, torn_line })
}
