//! Drawing frames on a terminal.
//!
//! What is finished scrolls away as in any other program, so it can be scrolled back to, searched and copied. Only the
//! rows at the bottom are drawn again.

use std::io::{self, Write as _};

use capstan_channels::chat::{ColorMode, ScreenFrame, StyledLine, TerminalSize};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::{execute, terminal};

/// What a terminal is taken for that does not say.
const FALLBACK_TERMINAL_SIZE: TerminalSize = TerminalSize { columns: 80, rows: 24 };
/// Has a terminal show nothing of what is drawn until it is whole. Those that do not know it ignore it.
const BEGIN_SYNCHRONIZED_UPDATE: &str = "\u{1b}[?2026h";
const END_SYNCHRONIZED_UPDATE: &str = "\u{1b}[?2026l";
/// Clears the row the cursor is in, from its first column.
const CLEAR_ROW: &str = "\u{1b}[K";
/// The same and everything below. Some terminals take it for a wish to keep what was there when the whole screen is
/// cleared from its first column on, so it is done from the second.
const CLEAR_REST: &str = "\u{1b}[K\u{1b}[C\u{1b}[J\r";

/// A terminal that is drawn on; it is left as it was found.
pub(super) struct TerminalRenderer {
    palette: ColorMode,
    /// The bottom as it was drawn last, and where the cursor was left in it.
    bottom: Vec<StyledLine>,
    row: usize,
    column: usize,
}

impl TerminalRenderer {
    /// Takes the terminal.
    pub(super) fn open(palette: ColorMode) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let opened = Self { palette, bottom: Vec::new(), row: 0, column: 0 };
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(opened)
    }

    /// How large it is.
    pub(super) fn size() -> TerminalSize {
        match terminal::size() {
            Ok((columns, rows)) if columns > 0 && rows > 0 => {
                TerminalSize { columns: columns.into(), rows: rows.into() }
            }
            _ => FALLBACK_TERMINAL_SIZE,
        }
    }

    /// Draws what is new.
    pub(super) fn draw(&mut self, frame: &ScreenFrame) -> io::Result<()> {
        let is_same = frame.finished.is_empty()
            && (&frame.bottom, frame.cursor_row, frame.cursor_column) == (&self.bottom, self.row, self.column);
        if is_same {
            return Ok(());
        }
        let text = self.render(frame, Self::size().columns);
        (self.bottom, self.row, self.column) = (frame.bottom.clone(), frame.cursor_row, frame.cursor_column);
        write_stdout(&text)
    }

    /// What draws a frame over the one before.
    fn render(&self, frame: &ScreenFrame, columns: usize) -> String {
        let mut rows: Vec<String> =
            frame.finished.iter().chain(&frame.bottom).map(|row| self.palette.paint(row)).collect();
        if frame.bottom.is_empty() {
            rows.push(String::new());
        }
        let last = rows.len() - 1;
        let mut text = format!("{BEGIN_SYNCHRONIZED_UPDATE}{}\r", cursor_up(self.rows_above(columns)));
        for (index, row) in rows.iter().enumerate() {
            // A row is cleared before it is written: after its last column nothing could be cleared without it.
            text.push_str(if index == last { CLEAR_REST } else { CLEAR_ROW });
            text.push_str(row);
            text.push_str(if index == last { "\r" } else { "\r\n" });
        }
        text.push_str(&cursor_up(frame.bottom.len().saturating_sub(frame.cursor_row + 1)));
        text.push_str(&cursor_right(frame.cursor_column));
        text + END_SYNCHRONIZED_UPDATE
    }

    /// Everything is to be drawn anew, on an empty screen.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.reset_frame();
        write_stdout("\u{1b}[H\u{1b}[2J")
    }

    /// Hands the terminal back for a while, as it was found and without the bottom.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.draw(&ScreenFrame { finished: Vec::new(), bottom: Vec::new(), cursor_row: 0, cursor_column: 0 })?;
        execute!(io::stdout(), DisableBracketedPaste)?;
        terminal::disable_raw_mode()
    }

    /// Takes the terminal again, whatever others have done with it: the bottom is drawn anew where the cursor is.
    pub(super) fn reacquire(&mut self) -> io::Result<()> {
        self.reset_frame();
        // It would not be set again where it is thought to be set.
        terminal::disable_raw_mode()?;
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnableBracketedPaste)
    }

    fn reset_frame(&mut self) {
        (self.bottom, self.row, self.column) = (Vec::new(), 0, 0);
    }

    /// How many rows the bottom has above the cursor. A terminal that became narrower has broken them into more.
    fn rows_above(&self, columns: usize) -> usize {
        let rows = |line: &StyledLine| line.columns().div_ceil(columns.max(1)).max(1);
        self.bottom.iter().take(self.row).map(rows).sum::<usize>() + self.column / columns.max(1)
    }
}

fn write_stdout(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

fn cursor_up(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\u{1b}[{rows}A") }
}

fn cursor_right(columns: usize) -> String {
    if columns == 0 { String::new() } else { format!("\u{1b}[{columns}C") }
}

impl Drop for TerminalRenderer {
    fn drop(&mut self) {
        // Nothing is left to do where the terminal is gone.
        let _gone = execute!(io::stdout(), DisableBracketedPaste);
        let _gone = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
