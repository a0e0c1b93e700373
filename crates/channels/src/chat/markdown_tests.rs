use super::{Line, Markdown, Signs, Style};
use crate::chat::line::Palette;

const TEXT: &str = "\
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

fn whole(text: &str, width: usize, signs: Signs) -> Vec<Line> {
    let mut markdown = Markdown::new(signs, Style::Plain);
    let mut rows = markdown.push(text, width);
    rows.extend(markdown.end(width));
    rows
}

/// As a terminal gets it, with the sign of an escape sequence made visible.
fn painted(rows: &[Line], palette: Palette) -> String {
    let rows: Vec<String> = rows.iter().map(|row| palette.paint(row).replace('\u{1b}', "^")).collect();
    rows.join("\n")
}

#[test]
fn c01_markdown_in_colours() {
    insta::assert_snapshot!(painted(&whole(TEXT, 40, Signs::Hidden), Palette::Colour));
}

#[test]
fn c01_markdown_without_colours_keeps_its_signs() {
    insta::assert_snapshot!(painted(&whole(TEXT, 40, Signs::Shown), Palette::Plain));
}

#[test]
fn c01_markdown_in_a_narrow_window() {
    insta::assert_snapshot!(painted(&whole(TEXT, 20, Signs::Hidden), Palette::Plain));
}

#[test]
fn c01_a_text_that_comes_in_pieces_reads_as_one_that_comes_at_once() {
    for width in [3, 20, 40, 200] {
        for size in [1, 2, 3, 7, 50] {
            let mut markdown = Markdown::new(Signs::Hidden, Style::Plain);
            let mut rows = Vec::new();
            let characters: Vec<char> = TEXT.chars().collect();
            for piece in characters.chunks(size) {
                rows.extend(markdown.push(&piece.iter().collect::<String>(), width));
                let live = markdown.live(width);
                assert!(live.iter().all(|row| row.columns() <= width), "{live:?}");
            }
            rows.extend(markdown.end(width));
            assert_eq!(rows, whole(TEXT, width, Signs::Hidden), "{width} columns, {size} at a time");
        }
    }
}

#[test]
fn c01_a_line_that_goes_on_and_on_is_given_row_by_row_and_nothing_twice() {
    let text = "- one **two three** four `five six` seven eight nine ten eleven twelve";
    let mut markdown = Markdown::new(Signs::Hidden, Style::Plain);
    let mut rows = Vec::new();
    for (index, character) in text.chars().enumerate() {
        // The window changes meanwhile.
        let width = if index < 40 { 10 } else { 16 };
        rows.extend(markdown.push(&character.to_string(), width));
        rows.extend(markdown.settle(width));
        assert!(markdown.live(width).len() <= 1);
    }
    rows.extend(markdown.end(16));
    let words: Vec<String> =
        rows.iter().flat_map(|row| row.text().split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(words.join(" "), "• one two three four five six seven eight nine ten eleven twelve");
}

#[test]
fn c01_text_is_seen_before_its_line_is_finished() {
    let mut markdown = Markdown::new(Signs::Hidden, Style::Plain);
    assert_eq!(markdown.push("I am **th", 40), []);
    assert_eq!(markdown.live(40), [Line::of("I am ", Style::Plain).and("th", Style::Strong)]);
}
