//! Incremental drawing of frames on a terminal.
//!
//! Finished rows are printed once and scroll away as in any other program, so they can be scrolled back to, searched and
//! copied. Only the bottom rows are redrawn.

use std::io::{self, Write as _};

use capstan_channels::chat::{ColorMode, ScreenFrame, StyledLine, TerminalSize};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::{execute, terminal};

/// Size of a terminal that does not report one.
const FALLBACK_TERMINAL_SIZE: TerminalSize = TerminalSize { columns: 80, rows: 24 };
/// Starts an update that the terminal shows in one piece. Terminals without support ignore it.
const BEGIN_SYNCHRONIZED_UPDATE: &str = "\u{1b}[?2026h";
const END_SYNCHRONIZED_UPDATE: &str = "\u{1b}[?2026l";
/// Clears the row of the cursor, which is in the first column.
const CLEAR_ROW: &str = "\u{1b}[K";
/// Clears the row of the cursor and everything below. Starts in the second column, because some terminals scroll the old
/// content away when the whole screen is cleared from the first.
const CLEAR_REST: &str = "\u{1b}[K\u{1b}[C\u{1b}[J\r";

/// A terminal in raw mode, restored on drop.
pub(super) struct TerminalRenderer {
    palette: ColorMode,
    /// Bottom rows of the last frame.
    bottom: Vec<StyledLine>,
    /// Cursor row within the bottom rows.
    row: usize,
    /// Cursor column.
    column: usize,
}

impl TerminalRenderer {
    /// Switches the terminal to raw mode.
    pub(super) fn open(palette: ColorMode) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let renderer = Self { palette, bottom: Vec::new(), row: 0, column: 0 };
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(renderer)
    }

    /// Current size of the terminal.
    pub(super) fn size() -> TerminalSize {
        match terminal::size() {
            Ok((columns, rows)) if columns > 0 && rows > 0 => {
                TerminalSize { columns: columns.into(), rows: rows.into() }
            }
            _ => FALLBACK_TERMINAL_SIZE,
        }
    }

    /// Draws a frame if it differs from the last one.
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

    /// Output that replaces the last frame with this one.
    fn render(&self, frame: &ScreenFrame, columns: usize) -> String {
        let mut rows: Vec<String> =
            frame.finished.iter().chain(&frame.bottom).map(|row| self.palette.paint(row)).collect();
        if frame.bottom.is_empty() {
            rows.push(String::new());
        }
        let last = rows.len() - 1;
        let mut text = format!("{BEGIN_SYNCHRONIZED_UPDATE}{}\r", cursor_up(self.rows_above(columns)));
        for (index, row) in rows.iter().enumerate() {
            // Cleared before it is written: clearing after a full row would erase its last column.
            text.push_str(if index == last { CLEAR_REST } else { CLEAR_ROW });
            text.push_str(row);
            text.push_str(if index == last { "\r" } else { "\r\n" });
        }
        text.push_str(&cursor_up(frame.bottom.len().saturating_sub(frame.cursor_row + 1)));
        text.push_str(&cursor_right(frame.cursor_column));
        text + END_SYNCHRONIZED_UPDATE
    }

    /// Clears the screen, so that the next frame is drawn in full.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.reset_frame();
        write_stdout("\u{1b}[H\u{1b}[2J")
    }

    /// Restores the terminal temporarily, and removes the bottom rows.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.draw(&ScreenFrame { finished: Vec::new(), bottom: Vec::new(), cursor_row: 0, cursor_column: 0 })?;
        execute!(io::stdout(), DisableBracketedPaste)?;
        terminal::disable_raw_mode()
    }

    /// Switches to raw mode again after another program used the terminal. The next frame draws the bottom rows at the
    /// current cursor position.
    pub(super) fn reacquire(&mut self) -> io::Result<()> {
        self.reset_frame();
        // crossterm does nothing if it believes that raw mode is still on.
        terminal::disable_raw_mode()?;
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnableBracketedPaste)
    }

    fn reset_frame(&mut self) {
        (self.bottom, self.row, self.column) = (Vec::new(), 0, 0);
    }

    /// Number of bottom rows above the cursor. A terminal that became narrower has wrapped them into more.
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
        // Fails if the terminal is gone, with nothing left to restore.
        let _gone = execute!(io::stdout(), DisableBracketedPaste);
        let _gone = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
