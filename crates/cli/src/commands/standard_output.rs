//! Whether there is a standard output.

use capstan_protocol::ErrorCode;
use std::io;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, stat};

use crate::CommandError;

/// Refuses to go on where nobody can be told anything: this process was started with its standard output closed.
pub(super) fn check_open() -> Result<(), CommandError> {
    if is_closed().unwrap_or(false) {
        let message = "the standard output is closed, and the answers of the channel stdio go there";
        return Err(CommandError::new(ErrorCode::OutputClosed, message));
    }
    Ok(())
}

/// Whether it was closed when the process began: the standard library then puts `/dev/null` in its place, open both
/// ways. Whoever wants no answers opens that for writing only, as shells do.
fn is_closed() -> io::Result<bool> {
    let output = io::stdout();
    let (status, null) = (fstat(&output)?, stat("/dev/null")?);
    let is_null = FileType::from_raw_mode(status.st_mode).is_char_device() && status.st_rdev == null.st_rdev;
    Ok(is_null && fcntl_getfl(&output)? & OFlags::RWMODE == OFlags::RDWR)
}
