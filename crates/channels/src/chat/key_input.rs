//! What can be done at a keyboard, whatever library reads it.

/// Something a person did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyInput {
    /// A character.
    Character(char),
    /// Text that came at once, with its line ends.
    Paste(String),
    /// Sends what is written.
    Enter,
    /// A new line in what is written.
    NewLine,
    /// Takes the character before away.
    Backspace,
    /// Takes the character under the cursor away.
    Delete,
    /// Takes the word before away.
    DeleteWord,
    /// Takes everything before in the line away.
    DeleteToStart,
    /// Takes everything after in the line away.
    DeleteToEnd,
    /// One to the left.
    Left,
    /// One to the right.
    Right,
    /// A word to the left.
    WordLeft,
    /// A word to the right.
    WordRight,
    /// To the start of the line.
    Home,
    /// To the end of the line.
    End,
    /// A line up, or an earlier message.
    Up,
    /// A line down, or a later message.
    Down,
    /// Completes the word.
    Tab,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    EndOfInput,
    /// Ctrl-Z.
    Suspend,
    /// Draws everything anew.
    Redraw,
    /// Shows the whole of what the last tool gave.
    Expand,
}
