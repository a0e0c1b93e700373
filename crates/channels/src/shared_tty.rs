//! Terminal shared by replies and notes (everything that is not a reply). A note starts a new line, even while a reply
//! streams.

use std::fs::File;
use std::io::{IsTerminal as _, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// State of the terminal to which standard output and standard error are connected.
static STANDARD_TTY: LazyLock<SharedTty> = LazyLock::new(SharedTty::default);

/// Terminal that shows replies and notes from two streams. Clones share its state.
#[derive(Debug, Clone, Default)]
pub struct SharedTty {
    /// True while the last line on the terminal is an unfinished line of a reply.
    is_reply_line_open: Arc<Mutex<bool>>,
}

impl SharedTty {
    /// Returns the terminal of this process. All notes to standard error must go through its
    /// [`note_writer`](Self::note_writer), since a reply may be streaming.
    pub fn standard() -> Self {
        STANDARD_TTY.clone()
    }

    /// Wraps a stream for replies.
    pub fn reply_writer<W: Write>(&self, stream: W) -> ReplyWriter<W> {
        ReplyWriter { stream, tty: self.clone() }
    }

    /// Wraps a stream for notes.
    pub fn note_writer<W: Write>(&self, stream: W) -> NoteWriter<W> {
        NoteWriter { stream, tty: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_reply_line_open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if standard output and standard error are the same terminal.
pub(crate) fn is_standard_shared() -> bool {
    let (output, error) = (std::io::stdout(), std::io::stderr());
    let is_terminal = output.is_terminal() && error.is_terminal();
    is_terminal && device_id(&output).zip(device_id(&error)).is_some_and(|(one, other)| one == other)
}

fn device_id(stream: &impl AsFd) -> Option<u64> {
    let stream = File::from(stream.as_fd().try_clone_to_owned().ok()?);
    Some(stream.metadata().ok()?.rdev())
}

/// Writer for replies. Flushes after each write.
#[derive(Debug)]
pub struct ReplyWriter<W> {
    stream: W,
    tty: SharedTty,
}

impl<W: Write> Write for ReplyWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut is_reply_line_open = self.tty.lock();
        let written = self.stream.write(bytes)?;
        // Text left in the stream's buffer would appear after a later note.
        self.stream.flush()?;
        if let Some(last) = bytes[..written].last() {
            *is_reply_line_open = *last != b'\n';
        }
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

/// Writer for notes. Ends an unfinished line of a reply first, and writes the bytes of one call without interruption.
#[derive(Debug)]
pub struct NoteWriter<W> {
    stream: W,
    tty: SharedTty,
}

impl<W: Write> Write for NoteWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut is_reply_line_open = self.tty.lock();
        if !bytes.is_empty() && std::mem::take(&mut *is_reply_line_open) {
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
        let (tty, mut screen) = (SharedTty::default(), Vec::new());
        for (is_note, text) in [
            (true, "first\n"),
            (false, "unfinished "),
            (false, "reply"),
            (true, ""),
            (true, "note\n"),
            (true, "note\n"),
            (false, "whole line\n"),
            (true, "last\n"),
        ] {
            if is_note {
                // Not `write_all`, which skips the call for an empty text.
                let written = tty.note_writer(&mut screen).write(text.as_bytes()).unwrap();
                assert_eq!(written, text.len());
            } else {
                tty.reply_writer(&mut screen).write_all(text.as_bytes()).unwrap();
            }
        }
        let screen = String::from_utf8(screen).unwrap();
        assert_eq!(screen, "first\nunfinished reply\nnote\nnote\nwhole line\nlast\n");
    }
}
