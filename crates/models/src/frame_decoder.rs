//! Taking the bytes of an answer apart: server-sent events, or one JSON object per line.

use std::collections::VecDeque;

/// How an answer is cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFormat {
    /// Server-sent events.
    ServerSentEvents,
    /// One JSON object per line.
    JsonLines,
}

/// One frame of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireFrame {
    /// The name of the event; empty where it has none.
    pub event: String,
    /// What it says.
    pub data: String,
}

/// Why bytes could not be taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// They are no UTF-8.
    InvalidUtf8,
    /// A frame does not end.
    TooLong,
}

/// The longest frame: an image in base64 fits well.
pub(crate) const MAX_FRAME_BYTES: usize = 64 << 20;

/// Bytes as they come, and the frames that are whole.
#[derive(Debug)]
pub(crate) struct FrameDecoder {
    format: FrameFormat,
    /// A line that has not ended yet.
    partial_line: Vec<u8>,
    /// An event that has not ended yet.
    event: String,
    data: Option<String>,
    complete: VecDeque<WireFrame>,
}

impl FrameDecoder {
    pub(crate) fn new(framing: FrameFormat) -> Self {
        Self { format: framing, partial_line: Vec::new(), event: String::new(), data: None, complete: VecDeque::new() }
    }

    /// Takes bytes in, wherever they are cut.
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

    /// No more bytes come: what is there counts as whole, as some servers leave out the last line end.
    pub(crate) fn finish(&mut self) -> Result<(), FrameError> {
        if !self.partial_line.is_empty() {
            self.finish_line()?;
        }
        self.finish_event();
        Ok(())
    }

    /// The next frame that is whole.
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
                self.complete.push_back(WireFrame { event: String::new(), data: line.to_owned() })
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
            // A server that cannot stream, or fails before it does, sends plain JSON.
            _ if line.starts_with('{') => {
                self.complete.push_back(WireFrame { event: String::new(), data: line.to_owned() })
            }
            // A comment, which keeps the connection alive, or a field that means nothing here.
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

    fn decode_chunks(framing: FrameFormat, bytes: &[u8], cut: usize) -> Vec<(String, String)> {
        let mut frames = FrameDecoder::new(framing);
        bytes.chunks(cut).for_each(|chunk| frames.push(chunk).unwrap());
        frames.finish().unwrap();
        std::iter::from_fn(|| frames.next_frame()).map(|frame| (frame.event, frame.data)).collect()
    }

    #[test]
    fn events_are_read_wherever_they_are_cut() {
        let bytes =
            ": hello\r\n\r\nevent: a\r\ndata: {\"x\":\r\ndata:  1}\r\n\r\nid: 7\ndata:你好\n\nevent: b\n\ndata: end"
                .as_bytes();
        let expected = [("a", "{\"x\":\n 1}"), ("", "你好"), ("", "end")];
        let expected = expected.map(|(event, data)| (event.to_owned(), data.to_owned()));
        for cut in 1..=bytes.len() {
            assert_eq!(decode_chunks(FrameFormat::ServerSentEvents, bytes, cut), expected, "cut every {cut} bytes");
        }
    }

    #[test]
    fn lines_are_read_wherever_they_are_cut() {
        for cut in 1..20 {
            let frames = decode_chunks(FrameFormat::JsonLines, b"{\"a\":1}\r\n\n{\"b\":2}", cut);
            assert_eq!(frames.iter().map(|(_, data)| data.as_str()).collect::<Vec<_>>(), ["{\"a\":1}", "{\"b\":2}"]);
        }
    }

    #[test]
    fn what_is_no_text_or_never_ends_is_damage() {
        assert_eq!(
            FrameDecoder::new(FrameFormat::ServerSentEvents).push(b"data: \xff\xfe\n"),
            Err(FrameError::InvalidUtf8)
        );
        let mut frames = FrameDecoder::new(FrameFormat::JsonLines);
        let chunk = vec![b'x'; 1 << 20];
        let damage = (0..65).find_map(|_| frames.push(&chunk).err());
        assert_eq!(damage, Some(FrameError::TooLong));
    }
}
