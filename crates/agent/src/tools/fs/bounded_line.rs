//! Reading of lines with bounded memory.

use std::io::{BufRead, Result};

/// Line of which at most a given number of bytes was kept.
#[derive(Debug, Default)]
pub(super) struct BoundedLine {
    /// First bytes, without the line ending.
    pub(super) bytes: Vec<u8>,
    /// Number of bytes that were not kept.
    pub(super) omitted_bytes: usize,
}

/// Reads the next line and keeps at most `keep` bytes of it; `None` at the end of the file.
pub(super) fn read_bounded_line(reader: &mut impl BufRead, keep: usize) -> Result<Option<BoundedLine>> {
    let mut line = BoundedLine::default();
    let mut has_data = false;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(has_data.then_some(line));
        }
        has_data = true;
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
    /// Returns the length of the whole line.
    pub(super) fn total_len(&self) -> usize {
        self.bytes.len() + self.omitted_bytes
    }

    /// Returns the line as text, if it is UTF-8, without a character that the limit cut in two.
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
