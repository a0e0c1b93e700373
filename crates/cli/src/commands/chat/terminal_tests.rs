use capstan_channels::chat::{Frame, Line, Palette, Style};
use std::num::NonZero;

use super::Terminal;

/// A terminal of ten columns and four rows, and what draws on it.
struct Drawn {
    terminal: Terminal,
    screen: vt100::Parser,
    written: String,
}

impl Drawn {
    fn new() -> Self {
        let size = |count| NonZero::new(count).unwrap();
        let terminal = Terminal { palette: Palette::Plain, bottom: Vec::new(), row: 0, column: 0 };
        Self { terminal, screen: vt100::Parser::new(size(4), size(10), 100), written: String::new() }
    }

    fn draw(&mut self, finished: &[&str], bottom: &[&str]) -> Vec<String> {
        let lines = |rows: &[&str]| rows.iter().map(|row| Line::of(*row, Style::Plain)).collect::<Vec<_>>();
        let row = bottom.len().saturating_sub(1);
        let frame = Frame { finished: lines(finished), bottom: lines(bottom), row, column: 1 };
        self.written = self.terminal.drawn(&frame, 10);
        (self.terminal.bottom, self.terminal.row, self.terminal.column) = (frame.bottom, frame.row, frame.column);
        self.screen.process(self.written.as_bytes());
        let seen = self.screen.screen().contents();
        seen.lines().map(|row| row.trim_end().to_owned()).collect()
    }
}

#[test]
fn c01_a_row_that_fills_the_window_is_written_whole_and_nothing_of_before_is_left() {
    let mut drawn = Drawn::new();
    assert_eq!(drawn.draw(&[], &["a", "0123456789", "› "]), ["a", "0123456789", "›"]);
    assert_eq!(drawn.draw(&["0123456789"], &["b", "9876543210"]), ["0123456789", "b", "9876543210"]);
    assert_eq!(drawn.draw(&[], &["c"]), ["0123456789", "c"]);
    assert_eq!(drawn.draw(&["c"], &[]), ["0123456789", "c"]);
}

#[test]
fn c01_a_bottom_at_the_top_of_the_window_is_not_kept_each_time_it_is_drawn() {
    let mut drawn = Drawn::new();
    for bottom in [["› a"].as_slice(), &["x", "› ab"], &["› abc"]] {
        drawn.draw(&[], bottom);
        // Where that clears the whole screen there are terminals that let it scroll away instead.
        assert!(!drawn.written.contains("\r\u{1b}[J") && !drawn.written.contains("h\u{1b}[J"), "{:?}", drawn.written);
    }
}
