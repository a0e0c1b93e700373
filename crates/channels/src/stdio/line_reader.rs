//! Line reader with a length limit.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::thread;

use tokio::sync::mpsc;

/// Byte order mark that some programs write before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Size of the read buffer.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Input line without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputLine {
    /// Line number, starting at 1.
    pub(super) number: u64,
    /// Content.
    pub(super) bytes: Result<Vec<u8>, LineTooLong>,
}

/// Error for a line that exceeds the limit. Its content was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineTooLong {
    /// Limit in bytes.
    pub(super) limit: usize,
}

/// Reads lines on a dedicated thread, one chunk ahead of the consumer; the lines of one read are sent together.
///
/// The thread is not joined, since it may block on input that never comes. It ends with its stream, with the receiver, or
/// with the process.
pub(super) fn spawn_line_reader(
    input: Box<dyn Read + Send>,
    limit: usize,
) -> mpsc::Receiver<io::Result<Vec<InputLine>>> {
    let (sender, receiver) = mpsc::channel(1);
    let reading = move || {
        let mut lines = LineReader { input: BufReader::with_capacity(READ_CHUNK_BYTES, input), limit, number: 0 };
        while let Some(batch) = lines.next_batch().transpose() {
            let failed = batch.is_err();
            if sender.blocking_send(batch).is_err() || failed {
                return;
            }
        }
    };
    // If the thread cannot be spawned, the sender is dropped, which the receiver treats as the end of the input.
    let _detached = thread::Builder::new().name("stdio-read".to_owned()).spawn(reading);
    receiver
}

struct LineReader<R> {
    input: BufReader<R>,
    limit: usize,
    number: u64,
}

impl<R: Read> LineReader<R> {
    /// Next line and all further lines that are already in the buffer.
    fn next_batch(&mut self) -> io::Result<Option<Vec<InputLine>>> {
        let Some(first) = self.next_line()? else { return Ok(None) };
        let mut lines = vec![first];
        while self.input.buffer().contains(&b'\n') {
            lines.extend(self.next_line()?);
        }
        Ok(Some(lines))
    }

    /// Next line. The last one may have no line end.
    fn next_line(&mut self) -> io::Result<Option<InputLine>> {
        let mut line = Ok(Vec::new());
        let mut started = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() && !started {
                return Ok(None);
            }
            started = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let length = line.as_ref().map_or(0, Vec::len);
            match &mut line {
                Ok(_) if length + part.len() > self.limit => line = Err(LineTooLong { limit: self.limit }),
                Ok(bytes) => bytes.extend_from_slice(part),
                Err(_) => {}
            }
            let is_complete = end.is_some() || chunk.is_empty();
            let consumed = part.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            if is_complete {
                self.number += 1;
                if let Ok(bytes) = line.as_mut()
                    && self.number == 1
                    && bytes.starts_with(BYTE_ORDER_MARK)
                {
                    bytes.drain(..BYTE_ORDER_MARK.len());
                }
                return Ok(Some(InputLine { number: self.number, bytes: line }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::{InputLine, LineReader, LineTooLong};

    fn read_lines(input: impl Read, limit: usize) -> Vec<InputLine> {
        let mut lines = LineReader { input: BufReader::with_capacity(3, input), limit, number: 0 };
        std::iter::from_fn(|| lines.next_line().unwrap()).collect()
    }

    fn input_line(number: u64, text: &str) -> InputLine {
        InputLine { number, bytes: Ok(text.as_bytes().to_vec()) }
    }

    #[test]
    fn c06_lines_are_numbered_and_the_last_one_may_have_no_line_end() {
        assert_eq!(
            read_lines("one\n\ntwo".as_bytes(), 9),
            [input_line(1, "one"), input_line(2, ""), input_line(3, "two")]
        );
        assert_eq!(read_lines("one\n".as_bytes(), 9), [input_line(1, "one")]);
        assert_eq!(read_lines("".as_bytes(), 9), []);
    }

    #[test]
    fn c06_byte_order_mark_is_skipped_only_at_the_start_of_the_input() {
        let marked = "\u{feff}one\n\u{feff}two\n";
        assert_eq!(read_lines(marked.as_bytes(), 9), [input_line(1, "one"), input_line(2, "\u{feff}two")]);
    }

    #[test]
    fn c06_buffered_lines_are_returned_together_without_waiting_for_more() {
        let input = "one\ntwo\nthr".as_bytes().chain("ee\n".as_bytes());
        let mut lines = LineReader { input: BufReader::new(input), limit: 9, number: 0 };
        assert_eq!(lines.next_batch().unwrap(), Some(vec![input_line(1, "one"), input_line(2, "two")]));
        assert_eq!(lines.next_batch().unwrap(), Some(vec![input_line(3, "three")]));
        assert_eq!(lines.next_batch().unwrap(), None);
    }

    #[test]
    fn c06_line_over_the_limit_is_skipped_and_reading_continues() {
        let long = InputLine { number: 2, bytes: Err(LineTooLong { limit: 4 }) };
        assert_eq!(read_lines("four\nfives\nok\n".as_bytes(), 4), [input_line(1, "four"), long, input_line(3, "ok")]);
        let last = InputLine { number: 1, bytes: Err(LineTooLong { limit: 4 }) };
        assert_eq!(read_lines(std::io::repeat(b'x').take(1_000_000), 4), [last]);
    }
}
