//! Reads the lines of a file from its end, so that the cost of finding the newest lines does not depend on the length of
//! the file.

use std::io::{self, Read, Seek, SeekFrom};

/// Minimum size of a chunk, except the first one of a file. For a line longer than the buffer, each chunk doubles the
/// buffer.
const MIN_CHUNK_BYTES: u64 = 16 * 1024;

/// Line with its position in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    /// Offset of the first byte of the line in the file.
    pub(super) offset: u64,
    /// Content without the newline.
    pub(super) bytes: Vec<u8>,
    /// The line ends with a newline. False only for an unfinished last line of the file.
    pub(super) has_newline: bool,
}

/// Reads lines from the end of a file to its beginning.
pub(super) struct BackwardLineReader<F> {
    file: F,
    /// Offset of the buffer in the file.
    buffer_offset: u64,
    /// Bytes that were read and not returned yet. They end at the start of the line that was returned last.
    buffer: Vec<u8>,
}

impl<F: Read + Seek> BackwardLineReader<F> {
    /// Creates a reader that starts at the current end of the file.
    pub(super) fn new(mut file: F) -> io::Result<Self> {
        let buffer_offset = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, buffer_offset, buffer: Vec::new() })
    }

    /// Reads the line before the one that was returned last. `None` at the beginning of the file.
    pub(super) fn next_line(&mut self) -> io::Result<Option<FileLine>> {
        loop {
            let has_newline = self.buffer.last() == Some(&b'\n');
            let text = &self.buffer[..self.buffer.len() - usize::from(has_newline)];
            let start = match text.iter().rposition(|byte| *byte == b'\n') {
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

    /// Prepends the chunk of the file before the buffer.
    fn load_previous_chunk(&mut self) -> io::Result<()> {
        let size = MIN_CHUNK_BYTES.max(self.buffer.len() as u64).min(self.buffer_offset);
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
    use super::{BackwardLineReader, MIN_CHUNK_BYTES};
    use std::io::Cursor;

    fn read_lines(text: &str) -> Vec<(u64, String, bool)> {
        let mut reader = BackwardLineReader::new(Cursor::new(text)).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
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
    fn line_may_be_longer_than_one_chunk() {
        let chunk = usize::try_from(MIN_CHUNK_BYTES).unwrap();
        for length in [chunk - 2, chunk - 1, chunk, chunk + 1, 5 * chunk + 3] {
            let long = "x".repeat(length);
            let found = read_lines(&format!("first\n{long}\nlast\n"));
            assert_eq!(found.len(), 3);
            assert_eq!(found[1], (6, long, true));
        }
    }
}
