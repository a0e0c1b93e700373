//! Reading the keyboard, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_channels::chat::Key;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

/// How often the thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);
/// How many keys may wait.
const WAITING: usize = 256;

/// What happens at a terminal.
pub(super) enum Input {
    /// A key.
    Key(Key),
    /// The terminal has another size.
    Resized,
}

/// The keyboard; it is read for as long as this is there.
pub(super) struct Keyboard {
    inputs: mpsc::Receiver<Input>,
    is_over: Arc<AtomicBool>,
}

impl Keyboard {
    /// Begins to read.
    pub(super) fn open() -> Self {
        let (sender, inputs) = mpsc::channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        // Were there no thread, its end would be seen: the chat ends.
        let _detached = std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || read(&sender, &over));
        Self { inputs, is_over }
    }

    /// The next thing that happens; nothing when the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Input> {
        self.inputs.recv().await
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

fn read(inputs: &mpsc::Sender<Input>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let happened = match event::poll(LOOK) {
            Ok(false) if is_there() => continue,
            Ok(false) => return,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let input = match happened {
            Ok(Event::Key(key)) => key_of(key).map(Input::Key),
            Ok(Event::Paste(text)) => Some(Input::Key(Key::Paste(text))),
            Ok(Event::Resize(..)) => Some(Input::Resized),
            Ok(_) => None,
            Err(_) => return,
        };
        if let Some(input) = input
            && inputs.blocking_send(input).is_err()
        {
            return;
        }
    }
}

/// Whether the terminal is still there. One that has gone is at its end for ever, which nobody else tells where hanging
/// up is ignored.
fn is_there() -> bool {
    rustix::termios::tcgetattr(std::io::stdin()).is_ok()
}

fn key_of(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    Some(match key.code {
        KeyCode::Char(letter) if control => match letter.to_ascii_lowercase() {
            'a' => Key::Home,
            'b' => Key::Left,
            'c' => Key::Interrupt,
            'd' => Key::EndOfInput,
            'e' => Key::End,
            'f' => Key::Right,
            'h' => Key::Backspace,
            'j' => Key::NewLine,
            'k' => Key::DeleteToEnd,
            'l' => Key::Redraw,
            'n' => Key::Down,
            'o' => Key::Expand,
            'p' => Key::Up,
            'u' => Key::DeleteToStart,
            'w' => Key::DeleteWord,
            'z' => Key::Suspend,
            _ => return None,
        },
        KeyCode::Char('b') if alt => Key::WordLeft,
        KeyCode::Char('f') if alt => Key::WordRight,
        KeyCode::Char(_) if alt => return None,
        KeyCode::Char(letter) => Key::Character(letter),
        KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => Key::NewLine,
        KeyCode::Enter => Key::Enter,
        KeyCode::Backspace if alt || control => Key::DeleteWord,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Left if alt || control => Key::WordLeft,
        KeyCode::Right if alt || control => Key::WordRight,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        _ => return None,
    })
}
