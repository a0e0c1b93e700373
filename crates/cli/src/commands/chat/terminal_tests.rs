use capstan_channels::chat::{ColorMode, ScreenFrame, StyledLine, TextStyle};
use std::num::NonZero;

use super::TerminalRenderer;

/// A terminal of ten columns and four rows, and what draws on it.
struct RendererFixture {
    terminal: TerminalRenderer,
    screen: vt100::Parser,
    output: String,
}

impl RendererFixture {
    fn new() -> Self {
        let size = |count| NonZero::new(count).unwrap();
        let terminal = TerminalRenderer { palette: ColorMode::Plain, bottom: Vec::new(), row: 0, column: 0 };
        Self { terminal, screen: vt100::Parser::new(size(4), size(10), 100), output: String::new() }
    }

    fn draw(&mut self, finished: &[&str], bottom: &[&str]) -> Vec<String> {
        let lines =
            |rows: &[&str]| rows.iter().map(|row| StyledLine::styled(*row, TextStyle::Plain)).collect::<Vec<_>>();
        let row = bottom.len().saturating_sub(1);
        let frame = ScreenFrame { finished: lines(finished), bottom: lines(bottom), cursor_row: row, cursor_column: 1 };
        self.output = self.terminal.render(&frame, 10);
        (self.terminal.bottom, self.terminal.row, self.terminal.column) =
            (frame.bottom, frame.cursor_row, frame.cursor_column);
        self.screen.process(self.output.as_bytes());
        let seen = self.screen.screen().contents();
        seen.lines().map(|row| row.trim_end().to_owned()).collect()
    }
}

#[test]
fn c01_a_row_that_fills_the_window_is_written_whole_and_nothing_of_before_is_left() {
    let mut drawn = RendererFixture::new();
    assert_eq!(drawn.draw(&[], &["a", "0123456789", "› "]), ["a", "0123456789", "›"]);
    assert_eq!(drawn.draw(&["0123456789"], &["b", "9876543210"]), ["0123456789", "b", "9876543210"]);
    assert_eq!(drawn.draw(&[], &["c"]), ["0123456789", "c"]);
    assert_eq!(drawn.draw(&["c"], &[]), ["0123456789", "c"]);
}

#[test]
fn c01_a_bottom_at_the_top_of_the_window_is_not_kept_each_time_it_is_drawn() {
    let mut drawn = RendererFixture::new();
    for bottom in [["› a"].as_slice(), &["x", "› ab"], &["› abc"]] {
        drawn.draw(&[], bottom);
        // Where that clears the whole screen there are terminals that let it scroll away instead.
        assert!(!drawn.output.contains("\r\u{1b}[J") && !drawn.output.contains("h\u{1b}[J"), "{:?}", drawn.output);
    }
}
