//! One screen for replies and for everything else: a note must not stand on the line of a reply that has not ended.

use std::fs::File;
use std::io::{IsTerminal as _, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The screen that the standard streams of this process come to, if they come to one.
static STANDARD_TTY: LazyLock<SharedTty> = LazyLock::new(SharedTty::default);

/// A screen on which two streams come together, each of which knows only what it writes itself.
#[derive(Debug, Clone, Default)]
pub struct SharedTty {
    /// Whether the last line is one of a reply and has not ended.
    is_reply_line_open: Arc<Mutex<bool>>,
}

impl SharedTty {
    /// That of this process. Whatever is written to the standard error while a reply may be there is written through it.
    pub fn standard() -> Self {
        STANDARD_TTY.clone()
    }

    /// The stream for replies.
    pub fn reply_writer<W: Write>(&self, stream: W) -> ReplyWriter<W> {
        ReplyWriter { stream, tty: self.clone() }
    }

    /// The stream for everything else.
    pub fn note_writer<W: Write>(&self, stream: W) -> NoteWriter<W> {
        NoteWriter { stream, tty: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_reply_line_open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the standard output and the standard error are the same terminal.
pub(crate) fn is_standard_shared() -> bool {
    let (output, error) = (std::io::stdout(), std::io::stderr());
    let is_terminal = output.is_terminal() && error.is_terminal();
    is_terminal && device_id(&output).zip(device_id(&error)).is_some_and(|(one, other)| one == other)
}

fn device_id(stream: &impl AsFd) -> Option<u64> {
    let stream = File::from(stream.as_fd().try_clone_to_owned().ok()?);
    Some(stream.metadata().ok()?.rdev())
}

/// A stream for replies.
#[derive(Debug)]
pub struct ReplyWriter<W> {
    stream: W,
    tty: SharedTty,
}

impl<W: Write> Write for ReplyWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut is_open = self.tty.lock();
        let written = self.stream.write(bytes)?;
        // A line may wait in the stream's own buffer, and a note would come before it.
        self.stream.flush()?;
        if let Some(last) = bytes[..written].last() {
            *is_open = *last != b'\n';
        }
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

/// A stream for everything else. What is written at once stays together.
#[derive(Debug)]
pub struct NoteWriter<W> {
    stream: W,
    tty: SharedTty,
}

impl<W: Write> Write for NoteWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut is_open = self.tty.lock();
        if !bytes.is_empty() && std::mem::take(&mut *is_open) {
            self.stream.write_all(b"\n")?;
        }
        self.stream.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::SharedTty;

    #[test]
    fn c01_a_note_begins_a_line_of_its_own_where_a_reply_has_not_ended() {
        let (screen, mut seen) = (SharedTty::default(), Vec::new());
        for (is_note, text) in [
            (true, "first\n"),
            (false, "half "),
            (false, "a line"),
            (true, ""),
            (true, "note\n"),
            (true, "note\n"),
            (false, "whole line\n"),
            (true, "last\n"),
        ] {
            if is_note {
                screen.note_writer(&mut seen).write_all(text.as_bytes()).unwrap();
            } else {
                screen.reply_writer(&mut seen).write_all(text.as_bytes()).unwrap();
            }
        }
        let seen = String::from_utf8(seen).unwrap();
        assert_eq!(seen, "first\nhalf a line\nnote\nnote\nwhole line\nlast\n");
    }
}
