//! Decoder for streamed response bodies: server-sent events, or one JSON object per line.

use std::collections::VecDeque;

/// Framing of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFormat {
    /// Server-sent events.
    ServerSentEvents,
    /// One JSON object per line.
    JsonLines,
}

/// One frame of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireFrame {
    /// Event name; empty if it has none.
    pub event: String,
    /// Payload.
    pub data: String,
}

/// Reason why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The bytes are not UTF-8.
    InvalidUtf8,
    /// The frame exceeds [`MAX_FRAME_BYTES`].
    TooLong,
}

/// Maximum size of a frame; large enough for an image in base64.
pub(crate) const MAX_FRAME_BYTES: usize = 32 << 20;

/// Incremental decoder: accepts bytes in arbitrary chunks and returns complete frames.
#[derive(Debug)]
pub(crate) struct FrameDecoder {
    format: FrameFormat,
    /// Line whose end was not read yet.
    partial_line: Vec<u8>,
    /// Fields of the event whose end was not read yet.
    event: String,
    data: Option<String>,
    complete: VecDeque<WireFrame>,
}

impl FrameDecoder {
    pub(crate) fn new(format: FrameFormat) -> Self {
        Self { format, partial_line: Vec::new(), event: String::new(), data: None, complete: VecDeque::new() }
    }

    /// Decodes the next chunk.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), FrameError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.partial_line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.finish_line()?;
        }
        self.partial_line.extend_from_slice(bytes);
        let length = self.partial_line.len() + self.data.as_ref().map_or(0, String::len);
        if length > MAX_FRAME_BYTES { Err(FrameError::TooLong) } else { Ok(()) }
    }

    /// Handles the end of the body. The last frame counts as complete, as some servers omit the final line end.
    pub(crate) fn finish(&mut self) -> Result<(), FrameError> {
        if !self.partial_line.is_empty() {
            self.finish_line()?;
        }
        self.finish_event();
        Ok(())
    }

    /// Next complete frame.
    pub(crate) fn next_frame(&mut self) -> Option<WireFrame> {
        self.complete.pop_front()
    }

    fn finish_line(&mut self) -> Result<(), FrameError> {
        let bytes = std::mem::take(&mut self.partial_line);
        let line = String::from_utf8(bytes).map_err(|_| FrameError::InvalidUtf8)?;
        let line = line.strip_suffix('\r').unwrap_or(&line);
        match self.format {
            FrameFormat::JsonLines if line.trim().is_empty() => {}
            FrameFormat::JsonLines => {
                self.complete.push_back(WireFrame { event: String::new(), data: line.to_owned() });
            }
            FrameFormat::ServerSentEvents if line.is_empty() => self.finish_event(),
            FrameFormat::ServerSentEvents => self.read_field(line),
        }
        Ok(())
    }

    fn read_field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (name, &mut self.data) {
            ("event", _) => value.clone_into(&mut self.event),
            ("data", Some(data)) => {
                data.push('\n');
                data.push_str(value);
            }
            ("data", None) => self.data = Some(value.to_owned()),
            // A server that cannot stream, or fails before streaming, sends plain JSON.
            _ if line.starts_with('{') => {
                self.complete.push_back(WireFrame { event: String::new(), data: line.to_owned() });
            }
            // A comment, which keeps the connection alive, or an unused field.
            _ => {}
        }
    }

    fn finish_event(&mut self) {
        let event = std::mem::take(&mut self.event);
        if let Some(data) = self.data.take() {
            self.complete.push_back(WireFrame { event, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FrameDecoder, FrameError, FrameFormat};

    fn decode_chunks(format: FrameFormat, bytes: &[u8], chunk_len: usize) -> Vec<(String, String)> {
        let mut decoder = FrameDecoder::new(format);
        bytes.chunks(chunk_len).for_each(|chunk| decoder.push(chunk).unwrap());
        decoder.finish().unwrap();
        std::iter::from_fn(|| decoder.next_frame()).map(|frame| (frame.event, frame.data)).collect()
    }

    #[test]
    fn events_are_decoded_from_chunks_of_any_length() {
        let bytes =
            ": hello\r\n\r\nevent: a\r\ndata: {\"x\":\r\ndata:  1}\r\n\r\nid: 7\ndata:你好\n\nevent: b\n\ndata: end"
                .as_bytes();
        let expected = [("a", "{\"x\":\n 1}"), ("", "你好"), ("", "end")];
        let expected = expected.map(|(event, data)| (event.to_owned(), data.to_owned()));
        for chunk_len in 1..=bytes.len() {
            let frames = decode_chunks(FrameFormat::ServerSentEvents, bytes, chunk_len);
            assert_eq!(frames, expected, "chunks of {chunk_len} bytes");
        }
    }

    #[test]
    fn json_lines_are_decoded_from_chunks_of_any_length() {
        for chunk_len in 1..20 {
            let frames = decode_chunks(FrameFormat::JsonLines, b"{\"a\":1}\r\n\n{\"b\":2}", chunk_len);
            assert_eq!(frames.iter().map(|(_, data)| data.as_str()).collect::<Vec<_>>(), ["{\"a\":1}", "{\"b\":2}"]);
        }
    }

    #[test]
    fn invalid_utf8_and_oversized_frames_are_errors() {
        assert_eq!(
            FrameDecoder::new(FrameFormat::ServerSentEvents).push(b"data: \xff\xfe\n"),
            Err(FrameError::InvalidUtf8)
        );
        let mut decoder = FrameDecoder::new(FrameFormat::JsonLines);
        let chunk = vec![b'x'; 1 << 20];
        let error = (0..65).find_map(|_| decoder.push(&chunk).err());
        assert_eq!(error, Some(FrameError::TooLong));
    }
}
