//! A text that is being said.

use super::escape::EscapeStripper;
use super::inline_markup::MarkupVisibility;
use super::markdown::MarkdownStream;
use super::styled_line::{ColorMode, StyledLine, TextStyle};

/// What stands before the model's reasoning.
const REASONING_ROW_PREFIX: &str = "┊ ";

/// What is being said, as far as it has come.
pub(super) struct StreamedText {
    pub(super) kind: StreamedTextKind,
    pub(super) markdown: MarkdownStream,
    pub(super) escape_stripper: EscapeStripper,
}

/// What kind of text it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamedTextKind {
    /// What a model answers.
    Reply,
    /// What it thinks on the way.
    Reasoning,
    /// What a command gave.
    CommandOutput,
}

impl StreamedText {
    pub(super) fn new(kind: StreamedTextKind, palette: ColorMode) -> Self {
        let signs = if palette == ColorMode::Color { MarkupVisibility::Hidden } else { MarkupVisibility::Shown };
        let markdown = match kind {
            StreamedTextKind::Reply => MarkdownStream::new(signs, TextStyle::Plain),
            StreamedTextKind::Reasoning => MarkdownStream::new(signs, TextStyle::Muted),
            StreamedTextKind::CommandOutput => MarkdownStream::verbatim(),
        };
        Self { kind, markdown, escape_stripper: EscapeStripper::default() }
    }

    /// How many columns its rows may have.
    pub(super) fn text_columns(&self, width: usize) -> usize {
        if self.kind == StreamedTextKind::Reasoning { width.saturating_sub(2).max(1) } else { width }
    }

    /// Its rows as they are shown.
    pub(super) fn prefix_rows(&self, rows: Vec<StyledLine>) -> Vec<StyledLine> {
        if self.kind != StreamedTextKind::Reasoning {
            return rows;
        }
        let before = |row: StyledLine| {
            let mut line = StyledLine::styled(REASONING_ROW_PREFIX, TextStyle::Muted);
            line.push(&row.text(), TextStyle::Muted);
            line
        };
        rows.into_iter().map(before).collect()
    }
}
