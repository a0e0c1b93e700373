//! The end of a tape file: its last entry, and what a crash may have left after it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use capstan_tape::{Entry, StoreError};

use super::backward_reader::{BackwardLineReader, FileLine};
use super::line::{is_blank, parse_line};

/// The end of a tape file.
#[derive(Debug, Default)]
pub(super) struct FileTail {
    /// The last entry.
    pub(super) last_entry: Option<Entry>,
    /// Where a last line begins that cannot be read.
    pub(super) torn_offset: Option<u64>,
    /// Whether the last entry lacks its newline.
    pub(super) lacks_newline: bool,
}

/// Looks at the end of a file.
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
                // Cut off at a torn line, the one before it ends with its newline.
                tail.lacks_newline = !line.has_newline;
                break;
            }
            Err(_) if tail.torn_offset.is_none() => tail.torn_offset = Some(line.offset),
            Err(error) => return Err(corrupt_line_error(file, path, &line, &error)),
        }
    }
    Ok(tail)
}

/// The error for a line that cannot be read. Only here its number is counted.
pub(super) fn corrupt_line_error(
    mut file: &File,
    path: &Path,
    line: &FileLine,
    error: &serde_json::Error,
) -> StoreError {
    let mut before = Vec::new();
    let counted = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(line.offset).read_to_end(&mut before));
    let place = match counted {
        Ok(_) => format!("line {}", before.split(|byte| *byte == b'\n').count()),
        Err(_) => format!("the line at byte {}", line.offset),
    };
    StoreError::corrupt(path.display().to_string(), format!("{place}: {error}"))
}

/// Moves everything from a torn line on into a file of its own, and says which.
pub(super) fn quarantine_torn_line(mut file: &File, path: &Path, torn_at: u64) -> io::Result<PathBuf> {
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(torn_at))?;
    file.read_to_end(&mut torn)?;
    let (mut aside, aside_path) = create_quarantine_file(path)?;
    aside.write_all(&torn)?;
    aside.sync_all()?;
    sync_parent_directory(path)?;
    // Only now that it is safe elsewhere.
    file.set_len(torn_at)?;
    file.sync_all()?;
    Ok(aside_path)
}

fn create_quarantine_file(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 1_u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".torn-{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (file, PathBuf::from(name))),
        }
    }
}

/// Makes a new file's name last.
pub(super) fn sync_parent_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        // Elsewhere a directory cannot be opened, and its entries last without it.
        Some(directory) if cfg!(unix) => {
            // What a path of one part is in has no name but this.
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            File::open(directory)?.sync_all()
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::sync_parent_directory;

    #[test]
    fn p12_what_a_path_of_one_part_is_in_is_synced_like_any_other_directory() {
        sync_parent_directory(Path::new("tapes")).unwrap();
    }
}
