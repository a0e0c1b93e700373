use capstan_channels::chat::{ColorMode, ScreenFrame, StyledLine, TextStyle};
use std::num::NonZero;

use super::TerminalRenderer;

/// A renderer and an emulated terminal of ten columns and four rows.
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
        let contents = self.screen.screen().contents();
        contents.lines().map(|row| row.trim_end().to_owned()).collect()
    }
}

#[test]
fn c01_full_width_row_is_drawn_whole_and_erases_the_previous_frame() {
    let mut renderer = RendererFixture::new();
    assert_eq!(renderer.draw(&[], &["a", "0123456789", "› "]), ["a", "0123456789", "›"]);
    assert_eq!(renderer.draw(&["0123456789"], &["b", "9876543210"]), ["0123456789", "b", "9876543210"]);
    assert_eq!(renderer.draw(&[], &["c"]), ["0123456789", "c"]);
    assert_eq!(renderer.draw(&["c"], &[]), ["0123456789", "c"]);
}

#[test]
fn c01_redrawing_at_the_top_of_the_window_does_not_fill_the_scrollback() {
    let mut renderer = RendererFixture::new();
    for bottom in [["› a"].as_slice(), &["x", "› ab"], &["› abc"]] {
        renderer.draw(&[], bottom);
        // Clearing the whole screen that way scrolls its content away on some terminals.
        assert!(
            !renderer.output.contains("\r\u{1b}[J") && !renderer.output.contains("h\u{1b}[J"),
            "{:?}",
            renderer.output
        );
    }
}
