use super::{MarkdownStream, MarkupVisibility, StyledLine, TextStyle};
use crate::chat::styled_line::ColorMode;

const SAMPLE_MARKDOWN: &str = "\
# A heading

Some **strong** words, *stressed* ones and `code`, in a paragraph that is longer than a row of the terminal is wide.


- one
- two, which goes on for so long that it needs a second row
  1. within

> a quote

```rust
fn main() {
    println!(\"**not strong**\");
}
```

| name | size |
|---|---:|
| `a` | 1 |
| long name | 22 |

你好世界你好世界你好世界你好世界
---
the end";

fn render_markdown(text: &str, width: usize, markup: MarkupVisibility) -> Vec<StyledLine> {
    let mut markdown = MarkdownStream::new(markup, TextStyle::Plain);
    let mut rows = markdown.push(text, width);
    rows.extend(markdown.finish(width));
    rows
}

/// Rows as sent to a terminal, with the escape character made visible.
fn paint_rows(rows: &[StyledLine], color_mode: ColorMode) -> String {
    let rows: Vec<String> = rows.iter().map(|row| color_mode.paint(row).replace('\u{1b}', "^")).collect();
    rows.join("\n")
}

#[test]
fn c01_markdown_is_styled_in_color_mode() {
    insta::assert_snapshot!(paint_rows(
        &render_markdown(SAMPLE_MARKDOWN, 40, MarkupVisibility::Hidden),
        ColorMode::Color
    ));
}

#[test]
fn c01_markdown_keeps_its_markers_without_colors() {
    insta::assert_snapshot!(paint_rows(
        &render_markdown(SAMPLE_MARKDOWN, 40, MarkupVisibility::Shown),
        ColorMode::Plain
    ));
}

#[test]
fn c01_markdown_is_wrapped_in_a_narrow_terminal() {
    insta::assert_snapshot!(paint_rows(
        &render_markdown(SAMPLE_MARKDOWN, 20, MarkupVisibility::Hidden),
        ColorMode::Plain
    ));
}

#[test]
fn c01_streamed_text_is_laid_out_like_complete_text() {
    for width in [3, 20, 40, 200] {
        for chunk_len in [1, 2, 3, 7, 50] {
            let mut markdown = MarkdownStream::new(MarkupVisibility::Hidden, TextStyle::Plain);
            let mut rows = Vec::new();
            let characters: Vec<char> = SAMPLE_MARKDOWN.chars().collect();
            for chunk in characters.chunks(chunk_len) {
                rows.extend(markdown.push(&chunk.iter().collect::<String>(), width));
                let live = markdown.live_rows(width);
                assert!(live.iter().all(|row| row.columns() <= width), "{live:?}");
            }
            rows.extend(markdown.finish(width));
            assert_eq!(
                rows,
                render_markdown(SAMPLE_MARKDOWN, width, MarkupVisibility::Hidden),
                "{width} columns, {chunk_len} characters at a time"
            );
        }
    }
}

#[test]
fn c01_long_line_is_emitted_row_by_row_without_loss_or_repetition() {
    let text = "- one **two three** four `five six` seven eight nine ten eleven twelve";
    let mut markdown = MarkdownStream::new(MarkupVisibility::Hidden, TextStyle::Plain);
    let mut rows = Vec::new();
    for (index, character) in text.chars().enumerate() {
        // The terminal is resized meanwhile.
        let width = if index < 40 { 10 } else { 16 };
        rows.extend(markdown.push(&character.to_string(), width));
        rows.extend(markdown.flush_stable_rows(width));
        assert!(markdown.live_rows(width).len() <= 1);
    }
    rows.extend(markdown.finish(16));
    let words: Vec<String> =
        rows.iter().flat_map(|row| row.text().split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(words.join(" "), "• one two three four five six seven eight nine ten eleven twelve");
}

#[test]
fn c01_text_is_shown_before_its_line_is_complete() {
    let mut markdown = MarkdownStream::new(MarkupVisibility::Hidden, TextStyle::Plain);
    assert_eq!(markdown.push("I am **th", 40), []);
    assert_eq!(
        markdown.live_rows(40),
        [StyledLine::styled("I am ", TextStyle::Plain).with_text("th", TextStyle::Strong)]
    );
}
