//! Keyboard input, independent of the library that reads it.

/// Key press or paste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyInput {
    /// A character.
    Character(char),
    /// Pasted text with its line ends.
    Paste(String),
    /// Send the message.
    Enter,
    /// Insert a line break.
    NewLine,
    /// Delete the character before the cursor.
    Backspace,
    /// Delete the character under the cursor.
    Delete,
    /// Delete the word before the cursor.
    DeleteWord,
    /// Delete from the start of the line to the cursor.
    DeleteToStart,
    /// Delete from the cursor to the end of the line.
    DeleteToEnd,
    /// Move one character to the left.
    Left,
    /// Move one character to the right.
    Right,
    /// Move one word to the left.
    WordLeft,
    /// Move one word to the right.
    WordRight,
    /// Move to the start of the line.
    Home,
    /// Move to the end of the line.
    End,
    /// Move one line up, or recall an earlier message.
    Up,
    /// Move one line down, or recall a later message.
    Down,
    /// Complete the word.
    Tab,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    EndOfInput,
    /// Ctrl-Z.
    Suspend,
    /// Redraw the screen.
    Redraw,
    /// Show the full output of the last tool call.
    Expand,
}
