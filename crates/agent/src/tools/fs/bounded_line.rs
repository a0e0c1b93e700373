//! Reading a file by lines without keeping more of it than is shown.

use std::io::{BufRead, Result};

/// A line, as far as it is kept.
#[derive(Debug, Default)]
pub(super) struct BoundedLine {
    /// The first bytes of it, without the end of the line.
    pub(super) bytes: Vec<u8>,
    /// How many more it has.
    pub(super) omitted_bytes: usize,
}

/// The next line, of which so many bytes are kept; nothing at the end of the file.
pub(super) fn read_bounded_line(reader: &mut impl BufRead, keep: usize) -> Result<Option<BoundedLine>> {
    let mut line = BoundedLine::default();
    let mut is_there = false;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(is_there.then_some(line));
        }
        is_there = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = keep.saturating_sub(line.bytes.len()).min(part.len());
        line.bytes.extend_from_slice(&part[..room]);
        line.omitted_bytes += part.len() - room;
        let read = part.len() + usize::from(end.is_some());
        reader.consume(read);
        if end.is_some() {
            if line.omitted_bytes == 0 && line.bytes.last() == Some(&b'\r') {
                line.bytes.pop();
            }
            return Ok(Some(line));
        }
    }
}

impl BoundedLine {
    /// How many bytes it has in all.
    pub(super) fn total_len(&self) -> usize {
        self.bytes.len() + self.omitted_bytes
    }

    /// The line as text, if it is text. A character that the cut goes through is left out.
    pub(super) fn text(&self) -> Option<&str> {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Some(text),
            Err(error) if error.error_len().is_none() && self.omitted_bytes > 0 => {
                std::str::from_utf8(&self.bytes[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        }
    }
}
