//! Keyboard input, read on a dedicated thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_channels::chat::KeyInput;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

/// Interval at which the thread checks if it was stopped.
const KEYBOARD_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Capacity of the input queue.
const MAX_QUEUED_KEYS: usize = 256;

/// An input event of the terminal.
pub(super) enum TerminalInput {
    /// A key press.
    Key(KeyInput),
    /// A new terminal size.
    Resized,
}

/// Reader of the keyboard, until dropped.
pub(super) struct KeyboardReader {
    inputs: mpsc::Receiver<TerminalInput>,
    is_stopped: Arc<AtomicBool>,
}

impl KeyboardReader {
    /// Starts the thread.
    pub(super) fn open() -> Self {
        let (sender, inputs) = mpsc::channel(MAX_QUEUED_KEYS);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let thread_is_stopped = Arc::clone(&is_stopped);
        // If the thread cannot be started, its sender is dropped, which ends the chat.
        let _detached = std::thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || read_keys(&sender, &thread_is_stopped));
        Self { inputs, is_stopped }
    }

    /// Next input, or `None` if the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<TerminalInput> {
        self.inputs.recv().await
    }
}

impl Drop for KeyboardReader {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }
}

fn read_keys(inputs: &mpsc::Sender<TerminalInput>, is_stopped: &AtomicBool) {
    while !is_stopped.load(Ordering::SeqCst) {
        let event = match event::poll(KEYBOARD_POLL_INTERVAL) {
            Ok(false) if is_terminal_open() => continue,
            Ok(false) => return,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let input = match event {
            Ok(Event::Key(key)) => to_key(key).map(TerminalInput::Key),
            Ok(Event::Paste(text)) => Some(TerminalInput::Key(KeyInput::Paste(text))),
            Ok(Event::Resize(..)) => Some(TerminalInput::Resized),
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

/// Checks if the terminal still exists. If SIGHUP is ignored, a lost terminal shows up only as a permanent end of input.
fn is_terminal_open() -> bool {
    rustix::termios::tcgetattr(std::io::stdin()).is_ok()
}

fn to_key(key: KeyEvent) -> Option<KeyInput> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    Some(match key.code {
        KeyCode::Char(letter) if control => match letter.to_ascii_lowercase() {
            'a' => KeyInput::Home,
            'b' => KeyInput::Left,
            'c' => KeyInput::Interrupt,
            'd' => KeyInput::EndOfInput,
            'e' => KeyInput::End,
            'f' => KeyInput::Right,
            'h' => KeyInput::Backspace,
            'j' => KeyInput::NewLine,
            'k' => KeyInput::DeleteToEnd,
            'l' => KeyInput::Redraw,
            'n' => KeyInput::Down,
            'o' => KeyInput::Expand,
            'p' => KeyInput::Up,
            'u' => KeyInput::DeleteToStart,
            'w' => KeyInput::DeleteWord,
            'z' => KeyInput::Suspend,
            _ => return None,
        },
        KeyCode::Char('b') if alt => KeyInput::WordLeft,
        KeyCode::Char('f') if alt => KeyInput::WordRight,
        KeyCode::Char(_) if alt => return None,
        KeyCode::Char(letter) => KeyInput::Character(letter),
        KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => KeyInput::NewLine,
        KeyCode::Enter => KeyInput::Enter,
        KeyCode::Backspace if alt || control => KeyInput::DeleteWord,
        KeyCode::Backspace => KeyInput::Backspace,
        KeyCode::Delete => KeyInput::Delete,
        KeyCode::Left if alt || control => KeyInput::WordLeft,
        KeyCode::Right if alt || control => KeyInput::WordRight,
        KeyCode::Left => KeyInput::Left,
        KeyCode::Right => KeyInput::Right,
        KeyCode::Up => KeyInput::Up,
        KeyCode::Down => KeyInput::Down,
        KeyCode::Home => KeyInput::Home,
        KeyCode::End => KeyInput::End,
        KeyCode::Tab => KeyInput::Tab,
        _ => return None,
    })
}
