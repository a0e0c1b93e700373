//! Asking a person at a terminal.

use capstan_protocol::ErrorCode;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use rustix::termios::tcgetattr;
use secrecy::SecretString;

use super::answers::is_single_token;
use crate::CommandError;

/// How often is looked whether the terminal is still there.
const PROMPT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether there is somebody to ask.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for a line. An empty one is what stands in the brackets.
pub(super) fn prompt_line(question: &str, present: &str) -> Result<String, CommandError> {
    if present.is_empty() {
        stderr_prompt!("{question}: ");
    } else {
        stderr_prompt!("{question} [{present}]: ");
    }
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(cancelled_error()),
        Ok(_) => Ok(match line.trim() {
            "" => present.to_owned(),
            answer => answer.to_owned(),
        }),
        Err(error) => Err(unreadable_error(&error)),
    }
}

/// Asks for a line until it is one that can be used.
pub(super) fn prompt_until_valid(
    question: &str,
    present: &str,
    check: impl Fn(&str) -> Result<(), CommandError>,
) -> Result<String, CommandError> {
    loop {
        let answer = prompt_line(question, present)?;
        match check(&answer) {
            Ok(()) => return Ok(answer),
            Err(failure) => stderr_line!("{}", failure.message),
        }
    }
}

/// Asks for one of these words, or the beginning of one. An empty line is the first.
pub(super) fn prompt_choice(question: &str, choices: &[&'static str]) -> Result<&'static str, CommandError> {
    loop {
        let answer = prompt_line(&format!("{question} ({})", choices.join(", ")), choices.first().unwrap_or(&""))?;
        if let Some(chosen) = choices.iter().find(|choice| choice.starts_with(&answer)) {
            return Ok(chosen);
        }
    }
}

/// Asks for something that nobody may see. Nothing stands for none.
pub(super) fn prompt_secret(question: &str) -> Result<Option<SecretString>, CommandError> {
    loop {
        let typed = read_hidden_line(question);
        stderr_line!();
        match typed {
            Ok(Some(typed)) => match typed.trim() {
                "" => return Ok(None),
                typed if is_single_token(typed) => return Ok(Some(SecretString::from(typed))),
                _ => stderr_line!("a key has no blanks"),
            },
            Ok(None) => return Err(cancelled_error()),
            Err(error) => return Err(unreadable_error(&error)),
        }
    }
}

/// What is typed up to the end of the line, which the terminal does not show; nothing when it is broken off.
fn read_hidden_line(question: &str) -> io::Result<Option<String>> {
    // Whoever answers as soon as the question is there must not be shown either.
    terminal::enable_raw_mode()?;
    let _restored = RawModeGuard;
    stderr_prompt!("{question}: ");
    // The question has no line end; whether it is seen is the terminal's affair.
    let _unseen = io::stderr().flush();
    let mut typed = String::new();
    loop {
        if !event::poll(PROMPT_POLL_INTERVAL)? {
            // A terminal that has gone has nothing more to say.
            tcgetattr(io::stdin())?;
            continue;
        }
        let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event::read()? else { continue };
        if kind == KeyEventKind::Release {
            continue;
        }
        let control = modifiers.contains(KeyModifiers::CONTROL);
        match code {
            KeyCode::Char('c' | 'd') if control => return Ok(None),
            KeyCode::Char('u') if control => typed.clear(),
            KeyCode::Enter => return Ok(Some(typed)),
            KeyCode::Char('j') if control => return Ok(Some(typed)),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(letter) if !control => typed.push(letter),
            _ => {}
        }
    }
}

struct RawModeGuard;

impl Drop for RawModeGuard {
    fn drop(&mut self) {
        // Nothing is left to do where the terminal is gone.
        let _gone = terminal::disable_raw_mode();
    }
}

pub(super) fn cancelled_error() -> CommandError {
    CommandError::new(ErrorCode::RunCancelled, "nothing was written").with_hint("`capstan onboard` asks again")
}

fn unreadable_error(error: &io::Error) -> CommandError {
    CommandError::new(ErrorCode::InputInvalid, format!("the answer cannot be read: {error}"))
}
