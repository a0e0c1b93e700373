//! Standard output and standard error: data goes to the first, everything else to the second.
//!
//! A failure to write a message to standard error is ignored. A failure to write data to standard output fails the
//! command, unless the reader has closed the pipe; a reply that no program reads fails its command too.
//!
//! A terminal never receives control characters, or characters that hide or reorder others: they are shown as escapes, in
//! JSON as escapes of JSON. Programs get data verbatim.

use std::fmt::Arguments;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};

use capstan_channels::SharedTty;
use capstan_channels::chat::strip_escapes;
use capstan_protocol::{ErrorCode, escape_json_text, escape_text};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, stat};

use crate::CommandError;

/// Writes a line to standard error. `eprintln!` would panic on a closed pipe or a full disk.
macro_rules! stderr_line {
    () => { $crate::output::write_stderr(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write_stderr(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes text to standard error without ending the line.
macro_rules! stderr_prompt {
    ($($text:tt)*) => { $crate::output::write_stderr(format_args!($($text)*)) };
}

pub(crate) fn write_stderr(text: Arguments<'_>) {
    // The text may quote a provider, a plugin or a file, none of which may control the terminal.
    let text = strip_escapes(&text.to_string());
    // One write, so that lines of several threads do not mix.
    let _unwritten = SharedTty::standard().note_writer(io::stderr()).write_all(text.as_bytes());
}

/// Prints lines of data. A reader that closes the pipe early, as `head` does, is not a failure.
pub(crate) fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<(), CommandError> {
    print_escaped(lines, escape_text)
}

/// Prints lines of JSON, like [`print_lines`].
pub(crate) fn print_json_lines(lines: impl IntoIterator<Item = String>) -> Result<(), CommandError> {
    print_escaped(lines, escape_json_text)
}

/// Writes lines; a terminal gets the escaped ones.
fn write_lines(lines: impl IntoIterator<Item = String>, escape: fn(&str) -> String) -> io::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    let is_terminal = io::stdout().is_terminal();
    let mut print_line = |line: String| writeln!(output, "{}", if is_terminal { escape(&line) } else { line });
    lines.into_iter().try_for_each(&mut print_line).and_then(|()| output.flush())
}

/// Prints lines; a terminal gets the escaped ones.
fn print_escaped(lines: impl IntoIterator<Item = String>, escape: fn(&str) -> String) -> Result<(), CommandError> {
    match write_lines(lines, escape) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(output_error(&error.to_string())),
        _ => Ok(()),
    }
}

/// Prints a reply as JSON. A reader that has closed the pipe has not got it, which is an error here.
pub(crate) fn print_json_reply(value: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    write_lines([text], escape_json_text)
}

/// Prints a line of data.
pub(crate) fn print(line: &str) -> Result<(), CommandError> {
    print_lines([line.to_owned()])
}

/// Prints a content verbatim. A terminal gets it as escaped text.
pub(crate) fn print_bytes(content: &[u8]) -> Result<(), CommandError> {
    if io::stdout().is_terminal() {
        return print(&String::from_utf8_lossy(content));
    }
    let mut output = io::stdout().lock();
    match output.write_all(content).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(output_error(&error.to_string())),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(value);
    print_json_lines([text.map_err(|error| output_error(&error.to_string()))?])
}

fn output_error(detail: &str) -> CommandError {
    CommandError::new(ErrorCode::OutputFailed, format!("cannot write to the standard output: {detail}"))
}

/// Fails if the process was started with its standard output closed, because replies of this channel would be lost.
pub(crate) fn check_stdout_open(channel: &str) -> Result<(), CommandError> {
    check_stdout_writable(channel)?;
    if is_stdout_replaced().unwrap_or(false) { Err(output_closed(channel)) } else { Ok(()) }
}

/// Fails if the standard output cannot be written, because replies of this channel would be lost.
///
/// A closed one passes: it looks like `/dev/null` as some programs open it for the programs that they start.
pub(crate) fn check_stdout_writable(channel: &str) -> Result<(), CommandError> {
    // What is written to a descriptor opened for reading only is discarded by the standard library.
    if stdout_access().is_ok_and(|access| access == OFlags::RDONLY) { Err(output_closed(channel)) } else { Ok(()) }
}

fn output_closed(channel: &str) -> CommandError {
    let message = format!("the standard output is closed, but the channel {channel} writes its replies there");
    CommandError::new(ErrorCode::OutputClosed, message)
}

/// Detects a standard output that was closed at process start.
///
/// The standard library replaces a closed descriptor with `/dev/null` opened for reading and writing. A user who discards
/// the replies opens `/dev/null` for writing only, as shells do.
fn is_stdout_replaced() -> io::Result<bool> {
    let (status, null) = (fstat(io::stdout())?, stat("/dev/null")?);
    let is_null = FileType::from_raw_mode(status.st_mode).is_char_device() && status.st_rdev == null.st_rdev;
    Ok(is_null && stdout_access()? == OFlags::RDWR)
}

fn stdout_access() -> io::Result<OFlags> {
    Ok(fcntl_getfl(io::stdout())? & OFlags::RWMODE)
}
