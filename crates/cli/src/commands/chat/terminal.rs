//! Drawing frames on a terminal.
//!
//! What is finished scrolls away as in any other program, so it can be scrolled back to, searched and copied. Only the
//! rows at the bottom are drawn again.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use capstan_channels::chat::{Frame, Line, Palette, Size};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::{execute, terminal};

/// What a terminal is taken for that does not say.
const USUAL: Size = Size { columns: 80, rows: 24 };
/// Has a terminal show nothing of what is drawn until it is whole. Those that do not know it ignore it.
const HOLD: &str = "\u{1b}[?2026h";
const SHOW: &str = "\u{1b}[?2026l";

/// A terminal that is drawn on; it is left as it was found.
pub(super) struct Terminal {
    palette: Palette,
    /// The bottom as it was drawn last, and where the cursor was left in it.
    bottom: Vec<Line>,
    row: usize,
    column: usize,
}

impl Terminal {
    /// Takes the terminal.
    pub(super) fn open(palette: Palette) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let opened = Self { palette, bottom: Vec::new(), row: 0, column: 0 };
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(opened)
    }

    /// How large it is.
    pub(super) fn size() -> Size {
        match terminal::size() {
            Ok((columns, rows)) if columns > 0 && rows > 0 => Size { columns: columns.into(), rows: rows.into() },
            _ => USUAL,
        }
    }

    /// Draws what is new.
    pub(super) fn draw(&mut self, frame: &Frame) -> io::Result<()> {
        let is_same = frame.finished.is_empty()
            && (&frame.bottom, frame.row, frame.column) == (&self.bottom, self.row, self.column);
        if is_same {
            return Ok(());
        }
        let mut text = String::from(HOLD);
        text.push_str(&up(self.rows_above(Self::size().columns)));
        text.push_str("\r\u{1b}[J");
        for row in &frame.finished {
            text.push_str(&self.palette.paint(row));
            text.push_str("\r\n");
        }
        for (index, row) in frame.bottom.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&self.palette.paint(row));
        }
        text.push_str(&up(frame.bottom.len().saturating_sub(frame.row + 1)));
        text.push('\r');
        if frame.column > 0 {
            // A text can always be written to.
            let _infallible = write!(text, "\u{1b}[{}C", frame.column);
        }
        text.push_str(SHOW);
        (self.bottom, self.row, self.column) = (frame.bottom.clone(), frame.row, frame.column);
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    }

    /// Everything is to be drawn anew, on an empty screen.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        (self.bottom, self.row, self.column) = (Vec::new(), 0, 0);
        let mut output = io::stdout().lock();
        output.write_all(b"\x1b[H\x1b[2J")?;
        output.flush()
    }

    /// How many rows the bottom has above the cursor. A terminal that became narrower has broken them into more.
    fn rows_above(&self, columns: usize) -> usize {
        let rows = |line: &Line| line.columns().div_ceil(columns.max(1)).max(1);
        self.bottom.iter().take(self.row).map(rows).sum::<usize>() + self.column / columns.max(1)
    }
}

fn up(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\u{1b}[{rows}A") }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing is left to do where the terminal is gone.
        let _gone = execute!(io::stdout(), DisableBracketedPaste);
        let _gone = terminal::disable_raw_mode();
    }
}
