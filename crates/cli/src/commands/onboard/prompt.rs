//! Prompts at a terminal.

use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;

use capstan_protocol::ErrorCode;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use rustix::termios::tcgetattr;
use secrecy::SecretString;

use super::answers::is_single_token;
use crate::{CommandError, attended_terminal};

/// Poll interval for terminal loss.
const PROMPT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Checks if prompts can be answered at a terminal.
pub(super) fn is_interactive() -> bool {
    attended_terminal::is_attended()
}

/// Asks for a line. An empty line selects the default, which the prompt shows in brackets.
pub(super) fn prompt_line(question: &str, default: &str) -> Result<String, CommandError> {
    if default.is_empty() {
        stderr_prompt!("{question}: ");
    } else {
        stderr_prompt!("{question} [{default}]: ");
    }
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(cancelled_error()),
        Ok(_) => Ok(match line.trim() {
            "" => default.to_owned(),
            answer => answer.to_owned(),
        }),
        Err(error) => Err(unreadable_error(&error)),
    }
}

/// Asks for a line until it passes the check.
pub(super) fn prompt_until_valid(
    question: &str,
    default: &str,
    check: impl Fn(&str) -> Result<(), CommandError>,
) -> Result<String, CommandError> {
    loop {
        let answer = prompt_line(question, default)?;
        match check(&answer) {
            Ok(()) => return Ok(answer),
            Err(failure) => stderr_line!("{}", failure.message),
        }
    }
}

/// Asks for one of the choices or a prefix of one. An empty line selects the first.
pub(super) fn prompt_choice(question: &str, choices: &[&'static str]) -> Result<&'static str, CommandError> {
    loop {
        let answer = prompt_line(&format!("{question} ({})", choices.join(", ")), choices.first().unwrap_or(&""))?;
        if let Some(choice) = choices.iter().find(|choice| choice.starts_with(&answer)) {
            return Ok(choice);
        }
    }
}

/// Asks for a secret without echo. An empty line means none.
pub(super) fn prompt_secret(question: &str) -> Result<Option<SecretString>, CommandError> {
    loop {
        let typed = read_hidden_line(question);
        stderr_line!();
        match typed {
            Ok(Some(typed)) => match typed.trim() {
                "" => return Ok(None),
                typed if is_single_token(typed) => return Ok(Some(SecretString::from(typed))),
                _ => stderr_line!("a key must not contain blanks"),
            },
            Ok(None) => return Err(cancelled_error()),
            Err(error) => return Err(unreadable_error(&error)),
        }
    }
}

/// Reads a line without echo; `None` if the user cancels.
fn read_hidden_line(question: &str) -> io::Result<Option<String>> {
    // Before the prompt, so that a fast answer is not echoed either.
    terminal::enable_raw_mode()?;
    let _guard = RawModeGuard;
    stderr_prompt!("{question}: ");
    // The prompt has no line ending; a lost prompt is not a failure.
    let _unflushed = io::stderr().flush();
    let mut typed = String::new();
    loop {
        if !event::poll(PROMPT_POLL_INTERVAL)? {
            // Fails if the terminal is gone.
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
        // Fails if the terminal is gone, with nothing left to restore.
        let _gone = terminal::disable_raw_mode();
    }
}

pub(super) fn cancelled_error() -> CommandError {
    CommandError::new(ErrorCode::RunCancelled, "cancelled, nothing was written")
        .with_hint("run `capstan onboard` to start again")
}

fn unreadable_error(error: &io::Error) -> CommandError {
    CommandError::new(ErrorCode::InputInvalid, format!("cannot read the answer: {error}"))
}
