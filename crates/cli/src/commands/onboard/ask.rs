//! Asking a person at a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use rustix::termios::tcgetattr;
use secrecy::SecretString;

use super::answers::is_one_word;
use crate::{Exit, Failure};

/// How often is looked whether the terminal is still there.
const LOOK: Duration = Duration::from_millis(50);

/// Whether there is somebody to ask.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for a line. An empty one is what stands in the brackets.
pub(super) fn line(question: &str, present: &str) -> Result<String, Failure> {
    if present.is_empty() {
        ask!("{question}: ");
    } else {
        ask!("{question} [{present}]: ");
    }
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(given_up()),
        Ok(_) => Ok(match line.trim() {
            "" => present.to_owned(),
            answer => answer.to_owned(),
        }),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Asks for a line until it is one that can be used.
pub(super) fn until(
    question: &str,
    present: &str,
    check: impl Fn(&str) -> Result<(), Failure>,
) -> Result<String, Failure> {
    loop {
        let answer = line(question, present)?;
        match check(&answer) {
            Ok(()) => return Ok(answer),
            Err(failure) => complain!("{}", failure.message),
        }
    }
}

/// Asks for one of these words, or the beginning of one. An empty line is the first.
pub(super) fn choice(question: &str, choices: &[&'static str]) -> Result<&'static str, Failure> {
    loop {
        let answer = line(&format!("{question} ({})", choices.join(", ")), choices.first().unwrap_or(&""))?;
        if let Some(chosen) = choices.iter().find(|choice| choice.starts_with(&answer)) {
            return Ok(chosen);
        }
    }
}

/// Asks for something that nobody may see. Nothing stands for none.
pub(super) fn secret(question: &str) -> Result<Option<SecretString>, Failure> {
    loop {
        let typed = unseen(question);
        complain!();
        match typed {
            Ok(Some(typed)) => match typed.trim() {
                "" => return Ok(None),
                typed if is_one_word(typed) => return Ok(Some(SecretString::from(typed))),
                _ => complain!("a key has no blanks"),
            },
            Ok(None) => return Err(given_up()),
            Err(error) => return Err(unreadable(&error)),
        }
    }
}

/// What is typed up to the end of the line, which the terminal does not show; nothing when it is broken off.
fn unseen(question: &str) -> io::Result<Option<String>> {
    // Whoever answers as soon as the question is there must not be shown either.
    terminal::enable_raw_mode()?;
    let _restored = Restored;
    ask!("{question}: ");
    // The question has no line end; whether it is seen is the terminal's affair.
    let _unseen = io::stderr().flush();
    let mut typed = String::new();
    loop {
        if !event::poll(LOOK)? {
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

struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // Nothing is left to do where the terminal is gone.
        let _gone = terminal::disable_raw_mode();
    }
}

pub(super) fn given_up() -> Failure {
    Failure::new("run-cancelled", "nothing was written", Exit::Cancelled).hinted("`capstan onboard` asks again")
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new("input-invalid", format!("the answer cannot be read: {error}"), Exit::Usage)
}
