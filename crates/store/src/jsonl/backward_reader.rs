//! Reader for the lines of a file from its end, so that the cost of finding new lines does not depend on the old ones.

use std::io::{self, Read, Seek, SeekFrom};

/// Size of the first read; longer lines are read in chunks of doubling size.
const INITIAL_READ_BYTES: u64 = 16 * 1024;

/// Line with its position in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    /// Offset of its first byte in the file.
    pub(super) offset: u64,
    /// Text without the newline.
    pub(super) bytes: Vec<u8>,
    /// Ends with a newline; false only for the last line of a file.
    pub(super) has_newline: bool,
}

/// Reads lines from the end of a file to its beginning.
pub(super) struct BackwardLineReader<F> {
    file: F,
    /// Offset of the buffer in the file.
    buffer_offset: u64,
    buffer: Vec<u8>,
}

impl<F: Read + Seek> BackwardLineReader<F> {
    /// Starts at the current end of the file.
    pub(super) fn new(mut file: F) -> io::Result<Self> {
        let buffer_offset = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, buffer_offset, buffer: Vec::new() })
    }

    /// Reads the line before the one that was returned last.
    pub(super) fn next_line(&mut self) -> io::Result<Option<FileLine>> {
        loop {
            let has_newline = self.buffer.last() == Some(&b'\n');
            let text = &self.buffer[..self.buffer.len() - usize::from(has_newline)];
            // An empty buffer says nothing about the line, not even if it ends with a newline.
            let newline = if self.buffer.is_empty() { None } else { text.iter().rposition(|byte| *byte == b'\n') };
            let start = match newline {
                Some(newline) => newline + 1,
                None if self.buffer_offset > 0 => {
                    self.load_previous_chunk()?;
                    continue;
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => 0,
            };
            let line =
                FileLine { offset: self.buffer_offset + start as u64, bytes: text[start..].to_vec(), has_newline };
            self.buffer.truncate(start);
            return Ok(Some(line));
        }
    }

    fn load_previous_chunk(&mut self) -> io::Result<()> {
        let size = INITIAL_READ_BYTES.max(self.buffer.len() as u64).min(self.buffer_offset);
        let mut chunk = Vec::new();
        self.file.seek(SeekFrom::Start(self.buffer_offset - size))?;
        let read = self.file.by_ref().take(size).read_to_end(&mut chunk)?;
        if read as u64 != size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated while it was read"));
        }
        chunk.append(&mut self.buffer);
        self.buffer = chunk;
        self.buffer_offset -= size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BackwardLineReader, INITIAL_READ_BYTES};
    use std::io::Cursor;

    fn read_lines(text: &str) -> Vec<(u64, String, bool)> {
        let mut backward = BackwardLineReader::new(Cursor::new(text)).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = backward.next_line().unwrap() {
            lines.push((line.offset, String::from_utf8(line.bytes).unwrap(), line.has_newline));
        }
        lines
    }

    #[test]
    fn lines_are_read_from_the_end_with_their_offsets() {
        assert_eq!(read_lines(""), []);
        assert_eq!(read_lines("\n"), [(0, String::new(), true)]);
        assert_eq!(read_lines("a\nbc"), [(2, "bc".into(), false), (0, "a".into(), true)]);
        assert_eq!(read_lines("a\n\nbc\n"), [(3, "bc".into(), true), (2, String::new(), true), (0, "a".into(), true)]);
    }

    #[test]
    fn line_may_be_longer_than_one_read() {
        let chunk = usize::try_from(INITIAL_READ_BYTES).unwrap();
        for length in [chunk - 2, chunk - 1, chunk, chunk + 1, 5 * chunk + 3] {
            let long = "x".repeat(length);
            let found = read_lines(&format!("first\n{long}\nlast\n"));
            assert_eq!(found.len(), 3);
            assert_eq!(found[1], (6, long, true));
        }
    }
}
