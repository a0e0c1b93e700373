//! Lines of a stream, none longer than a limit.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::thread;

use tokio::sync::mpsc;

/// What some programs put before UTF-8, to say that it is. It says nothing else.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: u64,
    /// What it says.
    pub(super) bytes: Result<Vec<u8>, TooLong>,
}

/// A line that has more bytes than the limit. Nothing of it was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong {
    /// The limit.
    pub(super) limit: usize,
}

/// Reads lines on a thread of its own, one chunk ahead of whoever takes them: what was read at once is given at once.
///
/// Nobody joins the thread: it may wait for input that never comes, and it ends with its stream, with whoever takes the
/// lines, or with the process.
pub(super) fn read(input: Box<dyn Read + Send>, limit: usize) -> mpsc::Receiver<io::Result<Vec<Line>>> {
    let (send, lines) = mpsc::channel(1);
    let reading = move || {
        let mut lines = Lines { input: BufReader::with_capacity(CHUNK, input), limit, number: 0 };
        while let Some(at_once) = lines.next_at_once().transpose() {
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

struct Lines<R> {
    input: BufReader<R>,
    limit: usize,
    number: u64,
}

impl<R: Read> Lines<R> {
    /// The next line and those whose end was read with it.
    fn next_at_once(&mut self) -> io::Result<Option<Vec<Line>>> {
        let Some(first) = self.next()? else { return Ok(None) };
        let mut lines = vec![first];
        while self.input.buffer().contains(&b'\n') {
            lines.extend(self.next()?);
        }
        Ok(Some(lines))
    }

    /// The next line; the last one may lack its end.
    fn next(&mut self) -> io::Result<Option<Line>> {
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
                Ok(_) if length + part.len() > self.limit => line = Err(TooLong { limit: self.limit }),
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
                return Ok(Some(Line { number: self.number, bytes: line }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::{Line, Lines, TooLong};

    fn lines(input: impl Read, limit: usize) -> Vec<Line> {
        let mut lines = Lines { input: BufReader::with_capacity(3, input), limit, number: 0 };
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    fn whole(number: u64, text: &str) -> Line {
        Line { number, bytes: Ok(text.as_bytes().to_vec()) }
    }

    #[test]
    fn c06_lines_are_numbered_and_the_last_one_may_lack_its_end() {
        assert_eq!(lines("one\n\ntwo".as_bytes(), 9), [whole(1, "one"), whole(2, ""), whole(3, "two")]);
        assert_eq!(lines("one\n".as_bytes(), 9), [whole(1, "one")]);
        assert_eq!(lines("".as_bytes(), 9), []);
    }

    #[test]
    fn c06_a_mark_at_the_very_beginning_is_skipped_and_any_other_is_part_of_its_line() {
        let marked = "\u{feff}one\n\u{feff}two\n";
        assert_eq!(lines(marked.as_bytes(), 9), [whole(1, "one"), whole(2, "\u{feff}two")]);
    }

    #[test]
    fn c06_lines_that_were_read_at_once_are_given_at_once_and_no_line_is_waited_for() {
        let input = "one\ntwo\nthr".as_bytes().chain("ee\n".as_bytes());
        let mut lines = Lines { input: BufReader::new(input), limit: 9, number: 0 };
        assert_eq!(lines.next_at_once().unwrap(), Some(vec![whole(1, "one"), whole(2, "two")]));
        assert_eq!(lines.next_at_once().unwrap(), Some(vec![whole(3, "three")]));
        assert_eq!(lines.next_at_once().unwrap(), None);
    }

    #[test]
    fn c06_a_line_over_the_limit_is_skipped_to_its_end_and_reading_goes_on() {
        let long = Line { number: 2, bytes: Err(TooLong { limit: 4 }) };
        assert_eq!(lines("four\nfives\nok\n".as_bytes(), 4), [whole(1, "four"), long, whole(3, "ok")]);
        let last = Line { number: 1, bytes: Err(TooLong { limit: 4 }) };
        assert_eq!(lines(std::io::repeat(b'x').take(1_000_000), 4), [last]);
    }
}
