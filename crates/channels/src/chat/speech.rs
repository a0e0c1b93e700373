//! A text that is being said.

use super::inline::Signs;
use super::line::{Line, Palette, Style};
use super::markdown::Markdown;
use super::tame::Tame;

/// What stands before the model's reasoning.
const REASONING: &str = "┊ ";

/// What is being said, as far as it has come.
pub(super) struct Speech {
    pub(super) kind: Kind,
    pub(super) markdown: Markdown,
    pub(super) tame: Tame,
}

/// What kind of text it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What a model answers.
    Reply,
    /// What it thinks on the way.
    Reasoning,
    /// What a command gave.
    Output,
}

impl Speech {
    pub(super) fn new(kind: Kind, palette: Palette) -> Self {
        let signs = if palette == Palette::Colour { Signs::Hidden } else { Signs::Shown };
        let markdown = match kind {
            Kind::Reply => Markdown::new(signs, Style::Plain),
            Kind::Reasoning => Markdown::new(signs, Style::Aside),
            Kind::Output => Markdown::verbatim(),
        };
        Self { kind, markdown, tame: Tame::default() }
    }

    /// How many columns its rows may have.
    pub(super) fn width(&self, width: usize) -> usize {
        if self.kind == Kind::Reasoning { width.saturating_sub(2).max(1) } else { width }
    }

    /// Its rows as they are shown.
    pub(super) fn rows(&self, rows: Vec<Line>) -> Vec<Line> {
        if self.kind != Kind::Reasoning {
            return rows;
        }
        let before = |row: Line| {
            let mut line = Line::of(REASONING, Style::Aside);
            line.push(&row.text(), Style::Aside);
            line
        };
        rows.into_iter().map(before).collect()
    }
}
