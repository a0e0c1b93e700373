//! Splits a byte stream into lines, within limits that hold before anything is parsed.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Size of a read.
const READ_BYTES: usize = 64 * 1024;

/// Line of the input, or the reason why it was dropped.
#[derive(Debug, PartialEq, Eq)]
pub enum InputFrame {
    /// Line within the limit, without its end.
    Line(Vec<u8>),
    /// A line exceeded the limit and was dropped up to its end.
    TooLong {
        /// Length of the line.
        bytes: u64,
    },
}

/// Reader of lines. Lines of white space only are skipped.
pub struct FrameReader<R> {
    input: R,
    max_bytes: usize,
    /// Bytes that were read.
    buffer: Vec<u8>,
    /// Beginning of the bytes that were not yet returned.
    start: usize,
    /// End of the bytes that are known to have no line end.
    scanned: usize,
    /// Bytes that were dropped of a line that is too long; 0 if the present line is not.
    dropped: u64,
    is_at_end: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads lines of at most `max_bytes`.
    pub fn new(input: R, max_bytes: usize) -> Self {
        Self { input, max_bytes, buffer: Vec::new(), start: 0, scanned: 0, dropped: 0, is_at_end: false }
    }

    /// Next line; `None` at the end of the input. A last line without its end is returned too.
    pub async fn next_frame(&mut self) -> std::io::Result<Option<InputFrame>> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            if self.is_at_end {
                return Ok(self.take_rest());
            }
            self.buffer.drain(..self.start);
            self.scanned -= std::mem::take(&mut self.start);
            self.buffer.reserve(READ_BYTES);
            let mut chunk = (&mut self.input).take(READ_BYTES as u64);
            if chunk.read_buf(&mut self.buffer).await? == 0 {
                self.is_at_end = true;
            }
        }
    }

    /// First complete line of the buffer.
    fn take_frame(&mut self) -> Option<InputFrame> {
        loop {
            let Some(end) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.buffer.len();
                let waiting = self.buffer.len() - self.start;
                // One byte more than the limit may be the carriage return before the line end.
                if self.dropped > 0 || waiting > self.max_bytes + 1 {
                    self.dropped += waiting as u64;
                    self.buffer = Vec::new();
                    (self.start, self.scanned) = (0, 0);
                }
                return None;
            };
            let end = self.scanned + end;
            let line = self.buffer[self.start..end].to_vec();
            (self.start, self.scanned) = (end + 1, end + 1);
            if let Some(frame) = self.finish_line(line) {
                return Some(frame);
            }
        }
    }

    fn take_rest(&mut self) -> Option<InputFrame> {
        let rest = self.buffer.split_off(self.start);
        self.buffer = Vec::new();
        (self.start, self.scanned) = (0, 0);
        self.finish_line(rest)
    }

    fn finish_line(&mut self, mut line: Vec<u8>) -> Option<InputFrame> {
        let dropped = std::mem::take(&mut self.dropped);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if dropped > 0 || line.len() > self.max_bytes {
            return Some(InputFrame::TooLong { bytes: dropped + line.len() as u64 });
        }
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(InputFrame::Line(line))
    }
}

/// Nesting of arrays and objects in a JSON text, without parsing it. For text that is not JSON the number has no
/// meaning.
pub fn nesting_depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut is_in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        if is_in_text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => is_in_text = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use proptest::prelude::*;
    use tokio::io::{AsyncRead, ReadBuf};

    use super::{FrameReader, InputFrame, nesting_depth};

    /// Input that arrives in pieces of given lengths.
    struct PiecewiseInput {
        bytes: Vec<u8>,
        position: usize,
        pieces: Vec<usize>,
        next_piece: usize,
    }

    impl AsyncRead for PiecewiseInput {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let piece = if self.pieces.is_empty() { 1 } else { self.pieces[self.next_piece % self.pieces.len()] };
            self.next_piece += 1;
            let end = (self.position + piece.max(1).min(buffer.remaining())).min(self.bytes.len());
            buffer.put_slice(&self.bytes[self.position..end]);
            self.position = end;
            Poll::Ready(Ok(()))
        }
    }

    fn frames(bytes: &[u8], pieces: Vec<usize>, max_bytes: usize) -> Vec<InputFrame> {
        let input = PiecewiseInput { bytes: bytes.to_vec(), position: 0, pieces, next_piece: 0 };
        let mut reader = FrameReader::new(input, max_bytes);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut frames = Vec::new();
            while let Some(frame) = reader.next_frame().await.unwrap() {
                frames.push(frame);
            }
            frames
        })
    }

    fn line(text: &str) -> InputFrame {
        InputFrame::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn k06_lines_are_split_whatever_the_pieces_they_arrive_in() {
        let input = "{\"a\":1}\n\n  \r\n{\"b\":\"\u{1f600}\"}\r\nlast".as_bytes();
        let expected = [line("{\"a\":1}"), line("{\"b\":\"\u{1f600}\"}"), line("last")];
        for piece in 1..=input.len() {
            assert_eq!(frames(input, vec![piece], 100), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn k06_a_line_over_the_limit_is_dropped_and_the_next_one_is_read() {
        let long = "x".repeat(11);
        let input = format!("{long}\n1234567890\n{long}{long}\nok\n{long}");
        for piece in [1, 2, 7, 1000] {
            let expected = [
                InputFrame::TooLong { bytes: 11 },
                line("1234567890"),
                InputFrame::TooLong { bytes: 22 },
                line("ok"),
                InputFrame::TooLong { bytes: 11 },
            ];
            assert_eq!(frames(input.as_bytes(), vec![piece], 10), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn k06_the_nesting_of_a_line_is_known_before_it_is_parsed() {
        for (text, depth) in
            [("", 0), ("1", 0), ("{}", 1), ("[[],{\"a\":[1]}]", 3), (r#"{"a":"[[[[\"[["}"#, 1), ("]]]]", 0)]
        {
            assert_eq!(nesting_depth(text.as_bytes()), depth, "{text}");
        }
        assert_eq!(nesting_depth("[".repeat(100_000).as_bytes()), 100_000);
    }

    proptest! {
        #[test]
        fn k06_no_bytes_are_lost_or_added(
            lines in prop::collection::vec("[a-z]{1,20}", 0..20),
            pieces in prop::collection::vec(1_usize..30, 1..5),
        ) {
            let input = lines.iter().fold(String::new(), |input, text| input + text + "\n");
            let expected: Vec<InputFrame> = lines
                .iter()
                .map(|text| if text.len() > 12 { InputFrame::TooLong { bytes: text.len() as u64 } } else { line(text) })
                .collect();
            prop_assert_eq!(frames(input.as_bytes(), pieces, 12), expected);
        }
    }
}
