//! Text that is being streamed.

use super::escape::EscapeStripper;
use super::inline_markup::MarkupVisibility;
use super::markdown::MarkdownStream;
use super::styled_line::{ColorMode, StyledLine, TextStyle};

/// Prefix of reasoning rows.
const REASONING_ROW_PREFIX: &str = "┊ ";

/// Text received so far.
pub(super) struct StreamedText {
    pub(super) kind: StreamedTextKind,
    pub(super) markdown: MarkdownStream,
    pub(super) escape_stripper: EscapeStripper,
}

/// Kind of streamed text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamedTextKind {
    /// Answer of a model.
    Reply,
    /// Reasoning of a model.
    Reasoning,
    /// Output of a command.
    CommandOutput,
}

impl StreamedText {
    pub(super) fn new(kind: StreamedTextKind, color_mode: ColorMode) -> Self {
        let markup = if color_mode == ColorMode::Color { MarkupVisibility::Hidden } else { MarkupVisibility::Shown };
        let markdown = match kind {
            StreamedTextKind::Reply => MarkdownStream::new(markup, TextStyle::Plain),
            StreamedTextKind::Reasoning => MarkdownStream::new(markup, TextStyle::Muted),
            StreamedTextKind::CommandOutput => MarkdownStream::verbatim(),
        };
        Self { kind, markdown, escape_stripper: EscapeStripper::default() }
    }

    /// Number of columns available for its rows.
    pub(super) fn text_columns(&self, width: usize) -> usize {
        if self.kind == StreamedTextKind::Reasoning { width.saturating_sub(2).max(1) } else { width }
    }

    /// Adds the prefix of its kind to each row.
    pub(super) fn prefix_rows(&self, rows: Vec<StyledLine>) -> Vec<StyledLine> {
        if self.kind != StreamedTextKind::Reasoning {
            return rows;
        }
        let with_prefix = |row: StyledLine| {
            let mut line = StyledLine::styled(REASONING_ROW_PREFIX, TextStyle::Muted);
            line.push(&row.text(), TextStyle::Muted);
            line
        };
        rows.into_iter().map(with_prefix).collect()
    }
}
