//! Lines of a stream, none longer than a limit.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::thread;

use tokio::sync::mpsc;

/// What some programs put before UTF-8, to say that it is. It says nothing else.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much is read at once.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputLine {
    /// Its number, from 1.
    pub(super) number: u64,
    /// What it says.
    pub(super) bytes: Result<Vec<u8>, LineTooLong>,
}

/// A line that has more bytes than the limit. Nothing of it was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineTooLong {
    /// The limit.
    pub(super) limit: usize,
}

/// Reads lines on a thread of its own, one chunk ahead of whoever takes them: what was read at once is given at once.
///
/// Nobody joins the thread: it may wait for input that never comes, and it ends with its stream, with whoever takes the
/// lines, or with the process.
pub(super) fn spawn_reader(input: Box<dyn Read + Send>, limit: usize) -> mpsc::Receiver<io::Result<Vec<InputLine>>> {
    let (send, lines) = mpsc::channel(1);
    let reading = move || {
        let mut lines = LineReader { input: BufReader::with_capacity(READ_CHUNK_BYTES, input), limit, number: 0 };
        while let Some(at_once) = lines.next_batch().transpose() {
            let failed = at_once.is_err();
            if send.blocking_send(at_once).is_err() || failed {
                return;
            }
        }
    };
    // Were there no thread, the sender would be dropped with it, which reads as the end of the input.
    let _detached = thread::Builder::new().name("stdio-read".to_owned()).spawn(reading);
    lines
}

struct LineReader<R> {
    input: BufReader<R>,
    limit: usize,
    number: u64,
}

impl<R: Read> LineReader<R> {
    /// The next line and those whose end was read with it.
    fn next_batch(&mut self) -> io::Result<Option<Vec<InputLine>>> {
        let Some(first) = self.next_line()? else { return Ok(None) };
        let mut lines = vec![first];
        while self.input.buffer().contains(&b'\n') {
            lines.extend(self.next_line()?);
        }
        Ok(Some(lines))
    }

    /// The next line; the last one may lack its end.
    fn next_line(&mut self) -> io::Result<Option<InputLine>> {
        let mut line = Ok(Vec::new());
        let mut begun = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() && !begun {
                return Ok(None);
            }
            begun = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let length = line.as_ref().map_or(0, Vec::len);
            match &mut line {
                Ok(_) if length + part.len() > self.limit => line = Err(LineTooLong { limit: self.limit }),
                Ok(bytes) => bytes.extend_from_slice(part),
                Err(_) => {}
            }
            let (over, taken) = (end.is_some() || chunk.is_empty(), part.len() + usize::from(end.is_some()));
            self.input.consume(taken);
            if over {
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
    fn c06_lines_are_numbered_and_the_last_one_may_lack_its_end() {
        assert_eq!(
            read_lines("one\n\ntwo".as_bytes(), 9),
            [input_line(1, "one"), input_line(2, ""), input_line(3, "two")]
        );
        assert_eq!(read_lines("one\n".as_bytes(), 9), [input_line(1, "one")]);
        assert_eq!(read_lines("".as_bytes(), 9), []);
    }

    #[test]
    fn c06_a_mark_at_the_very_beginning_is_skipped_and_any_other_is_part_of_its_line() {
        let marked = "\u{feff}one\n\u{feff}two\n";
        assert_eq!(read_lines(marked.as_bytes(), 9), [input_line(1, "one"), input_line(2, "\u{feff}two")]);
    }

    #[test]
    fn c06_lines_that_were_read_at_once_are_given_at_once_and_no_line_is_waited_for() {
        let input = "one\ntwo\nthr".as_bytes().chain("ee\n".as_bytes());
        let mut lines = LineReader { input: BufReader::new(input), limit: 9, number: 0 };
        assert_eq!(lines.next_batch().unwrap(), Some(vec![input_line(1, "one"), input_line(2, "two")]));
        assert_eq!(lines.next_batch().unwrap(), Some(vec![input_line(3, "three")]));
        assert_eq!(lines.next_batch().unwrap(), None);
    }

    #[test]
    fn c06_a_line_over_the_limit_is_skipped_to_its_end_and_reading_goes_on() {
        let long = InputLine { number: 2, bytes: Err(LineTooLong { limit: 4 }) };
        assert_eq!(read_lines("four\nfives\nok\n".as_bytes(), 4), [input_line(1, "four"), long, input_line(3, "ok")]);
        let last = InputLine { number: 1, bytes: Err(LineTooLong { limit: 4 }) };
        assert_eq!(read_lines(std::io::repeat(b'x').take(1_000_000), 4), [last]);
    }
}
