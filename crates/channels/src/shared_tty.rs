//! Terminal shared by replies and notes: a note must not continue the line of an unfinished reply.

use std::fs::File;
use std::io::{IsTerminal as _, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Terminal of the standard streams of this process, if they are one.
static STANDARD_TTY: LazyLock<SharedTty> = LazyLock::new(SharedTty::default);

/// Terminal on which two independent streams are merged.
#[derive(Debug, Clone, Default)]
pub struct SharedTty {
    /// True if the last line belongs to a reply and has not ended.
    is_reply_line_open: Arc<Mutex<bool>>,
}

impl SharedTty {
    /// Terminal of this process. Writes to standard error during a reply must go through it.
    pub fn standard() -> Self {
        STANDARD_TTY.clone()
    }

    /// Wraps the stream for replies.
    pub fn reply_writer<W: Write>(&self, stream: W) -> ReplyWriter<W> {
        ReplyWriter { stream, tty: self.clone() }
    }

    /// Wraps the stream for everything else.
    pub fn note_writer<W: Write>(&self, stream: W) -> NoteWriter<W> {
        NoteWriter { stream, tty: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_reply_line_open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if standard output and standard error are the same terminal.
pub(crate) fn is_standard_shared() -> bool {
    let (output, error) = (std::io::stdout(), std::io::stderr());
    let is_terminal = output.is_terminal() && error.is_terminal();
    is_terminal && device_id(&output).zip(device_id(&error)).is_some_and(|(one, other)| one == other)
}

fn device_id(stream: &impl AsFd) -> Option<u64> {
    let stream = File::from(stream.as_fd().try_clone_to_owned().ok()?);
    Some(stream.metadata().ok()?.rdev())
}

/// Stream for replies.
#[derive(Debug)]
pub struct ReplyWriter<W> {
    stream: W,
    tty: SharedTty,
}

impl<W: Write> Write for ReplyWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut is_open = self.tty.lock();
        let written = self.stream.write(bytes)?;
        // A line left in the stream's buffer would appear after a later note.
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

/// Stream for everything else. Each write is kept together.
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
    fn c01_note_starts_a_new_line_after_an_unfinished_reply() {
        let (tty, mut seen) = (SharedTty::default(), Vec::new());
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
                // `write_all` does not write an empty text at all.
                let written = tty.note_writer(&mut seen).write(text.as_bytes()).unwrap();
                assert_eq!(written, text.len());
            } else {
                tty.reply_writer(&mut seen).write_all(text.as_bytes()).unwrap();
            }
        }
        let seen = String::from_utf8(seen).unwrap();
        assert_eq!(seen, "first\nhalf a line\nnote\nnote\nwhole line\nlast\n");
    }
}
