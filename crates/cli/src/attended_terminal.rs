//! Questions at a terminal, which are asked only where a person can answer.

use std::io::{self, BufRead as _, IsTerminal as _, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Variable that systems set which run programs without a person.
const AUTOMATION_VARIABLE: &str = "CI";

/// Returns true if a person may answer a question: standard input and standard error are a terminal, this process is in its
/// foreground, and no automation is declared. A job in the background that reads from its terminal would be stopped.
pub(crate) fn is_attended() -> bool {
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal() && io::stderr().is_terminal();
    is_terminal && tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp()) && !is_automated()
}

fn is_automated() -> bool {
    std::env::var_os(AUTOMATION_VARIABLE).is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// Reads a line from standard input. Empty if none comes within the timeout or the input ends.
pub(crate) fn read_answer(timeout: Duration) -> String {
    let mut answer = String::new();
    let mut stdin = io::stdin().lock();
    if is_readable(&stdin, timeout) {
        // Without an answer the default holds.
        let _unread = stdin.by_ref().read_line(&mut answer);
    }
    answer
}

/// Waits until a stream can be read without blocking, or has ended.
fn is_readable(stream: &impl AsFd, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        let mut descriptors = [PollFd::new(stream, PollFlags::IN)];
        let remaining = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut descriptors, remaining.as_ref()) {
            Ok(count) => return count > 0,
            Err(error) if error == rustix::io::Errno::INTR => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, pipe};
    use std::time::Duration;

    use super::is_readable;

    #[test]
    fn a06_unanswered_question_ends_and_an_answer_is_read() {
        let (reader, mut writer) = pipe().unwrap();
        assert!(!is_readable(&reader, Duration::ZERO), "no answer yet");
        writer.write_all(b"y\n").unwrap();
        assert!(is_readable(&reader, Duration::MAX / 4));
        drop(writer);
        assert!(is_readable(&reader, Duration::MAX / 4), "the end of the input is no reason to wait");
    }
}
