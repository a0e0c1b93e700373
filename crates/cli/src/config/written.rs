//! Writing files of the home.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file that only its owner may read: the whole of it is there, or the one before is.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write_new(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // What could not be finished is of no use to anybody.
        let _left = std::fs::remove_file(&beside);
        return written;
    }
    // Not every file system can.
    let _unsynced = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // One that a dead process left may have other permissions.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
