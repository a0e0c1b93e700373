//! End of a tape file: its last entry, and a torn line that a crash may have left after it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use capstan_tape::{Entry, StoreError};

use super::backward_reader::{BackwardLineReader, FileLine};
use super::line::{is_blank, parse_line};
use crate::PRIVATE_FILE_MODE;

/// End of a tape file.
#[derive(Debug, Default)]
pub(super) struct FileTail {
    /// Last entry.
    pub(super) last_entry: Option<Entry>,
    /// Offset of a torn last line.
    pub(super) torn_offset: Option<u64>,
    /// The last entry has no newline.
    pub(super) lacks_newline: bool,
}

/// Reads the end of a file.
pub(super) fn read_tail(file: &File, path: &Path) -> Result<FileTail, StoreError> {
    let failed = |error| StoreError::io(format!("read {}", path.display()), error);
    let mut lines = BackwardLineReader::new(file).map_err(failed)?;
    let mut tail = FileTail::default();
    while let Some(line) = lines.next_line().map_err(failed)? {
        if is_blank(&line.bytes) {
            continue;
        }
        match parse_line(&line.bytes) {
            Ok(entry) => {
                tail.last_entry = Some(entry);
                // If a torn line follows, this line ends with a newline and stays complete when the torn one is
                // removed.
                tail.lacks_newline = !line.has_newline;
                break;
            }
            Err(_) if tail.torn_offset.is_none() => tail.torn_offset = Some(line.offset),
            Err(error) => return Err(corrupt_line_error(file, path, &line, &error)),
        }
    }
    Ok(tail)
}

/// Error for a line that cannot be parsed. Reads the file up to the line to find its number; done only for this error.
pub(super) fn corrupt_line_error(
    mut file: &File,
    path: &Path,
    line: &FileLine,
    error: &serde_json::Error,
) -> StoreError {
    let mut before = Vec::new();
    let counted = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(line.offset).read_to_end(&mut before));
    let position = match counted {
        Ok(_) => format!("line {}", before.split(|byte| *byte == b'\n').count()),
        Err(_) => format!("the line at byte {}", line.offset),
    };
    StoreError::corrupt(path.display().to_string(), format!("{position}: {error}"))
}

/// Moves a torn line and everything after it to a file of its own, and returns the path of that file.
pub(super) fn quarantine_torn_line(mut file: &File, path: &Path, torn_offset: u64) -> io::Result<PathBuf> {
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(torn_offset))?;
    file.read_to_end(&mut torn)?;
    let (mut quarantine, quarantine_path) = create_quarantine_file(path)?;
    quarantine.write_all(&torn)?;
    quarantine.sync_all()?;
    sync_parent_directory(path)?;
    // The copy is durable, so the original can be removed.
    file.set_len(torn_offset)?;
    file.sync_all()?;
    Ok(quarantine_path)
}

fn create_quarantine_file(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 1_u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".torn-{number}"));
        match OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE_MODE).open(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (file, PathBuf::from(name))),
        }
    }
}

/// Makes the directory entry of a new file durable.
pub(super) fn sync_parent_directory(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    // The parent of a path with one component is the empty path, which cannot be opened.
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::sync_parent_directory;

    #[test]
    fn p12_parent_of_a_path_with_one_component_is_synced() {
        sync_parent_directory(Path::new("tapes")).unwrap();
    }
}
