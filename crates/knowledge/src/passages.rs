//! Division of a text into passages: short enough to be shown, long enough to be understood.

use std::ops::Range;

/// Size from which on a passage ends with its paragraph, in bytes.
const MIN_PASSAGE_BYTES: usize = 800;
/// Maximum size of a passage, in bytes.
const MAX_PASSAGE_BYTES: usize = 2_000;

/// Position of a passage in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PassageSpan {
    /// First line, counted from 1.
    pub(super) line: u64,
    pub(super) bytes: Range<usize>,
}

/// Splits a text into passages. A heading begins a new passage; each begins and ends with a line that is not blank.
pub(super) fn split_passages(text: &str) -> Vec<PassageSpan> {
    let mut spans = PassageSplitter { text, finished: Vec::new(), open: None };
    let mut start = 0;
    let mut is_code = false;
    for (number, line) in (1_u64..).zip(text.split_inclusive('\n')) {
        let trimmed = line.trim();
        is_code ^= trimmed.starts_with("```");
        let bytes = start..start + line.len();
        start = bytes.end;
        if trimmed.is_empty() {
            spans.end_passage_if(MIN_PASSAGE_BYTES);
            continue;
        }
        if !is_code && is_heading(trimmed) {
            spans.end_passage_if(0);
        }
        spans.add_line(number, bytes);
    }
    spans.end_passage_if(0);
    spans.finished
}

/// Returns true if a line is a Markdown heading.
fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    rest.len() < line.len() && rest.starts_with(' ')
}

struct PassageSplitter<'a> {
    text: &'a str,
    finished: Vec<PassageSpan>,
    open: Option<PassageSpan>,
}

impl PassageSplitter<'_> {
    /// Ends the open passage if it has at least `least` bytes.
    fn end_passage_if(&mut self, least: usize) {
        self.finished.extend(self.open.take_if(|open| open.bytes.len() >= least));
    }

    /// Adds a line. A line that is too long for one passage becomes several.
    fn add_line(&mut self, line: u64, mut bytes: Range<usize>) {
        while !bytes.is_empty() {
            let begin = self.open.as_ref().map_or(bytes.start, |open| open.bytes.start);
            if bytes.end - begin <= MAX_PASSAGE_BYTES {
                self.open.get_or_insert_with(|| PassageSpan { line, bytes: bytes.clone() }).bytes.end = bytes.end;
                return;
            }
            if self.open.is_some() {
                self.end_passage_if(0);
                continue;
            }
            let end = self.text.floor_char_boundary(bytes.start + MAX_PASSAGE_BYTES);
            self.finished.push(PassageSpan { line, bytes: bytes.start..end });
            bytes.start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PASSAGE_BYTES, split_passages};

    fn split_text(text: &str) -> Vec<(u64, &str)> {
        split_passages(text).into_iter().map(|span| (span.line, text[span.bytes].trim())).collect()
    }

    #[test]
    fn g11_short_paragraphs_stay_together_and_headings_start_a_passage() {
        assert_eq!(split_text(""), []);
        assert_eq!(split_text("\n\n \n"), []);
        assert_eq!(split_text("\none\n\ntwo"), [(2, "one\n\ntwo")]);
        assert_eq!(
            split_text("one\n# Two\ntwo\n## Three\nthree"),
            [(1, "one"), (2, "# Two\ntwo"), (4, "## Three\nthree")]
        );
        assert_eq!(split_text("```\n# a comment\n```\n#tag").len(), 1, "these are no headings");
    }

    #[test]
    fn g11_long_text_is_divided_between_paragraphs_and_where_it_must_be() {
        let paragraph = "x".repeat(1_000);
        let text = format!("{paragraph}\n\n{paragraph}\n");
        assert_eq!(split_text(&text), [(1, paragraph.as_str()), (3, paragraph.as_str())]);
        let line = "é".repeat(3_000);
        let parts = split_text(&line);
        assert!(parts.iter().all(|(number, part)| *number == 1 && part.len() <= MAX_PASSAGE_BYTES));
        assert_eq!(parts.iter().map(|(_, part)| *part).collect::<String>(), line);
    }

    #[test]
    fn g11_every_line_that_says_something_stands_in_one_passage() {
        let text: String =
            (0..5_000).map(|n| if n % 7 == 0 { "\n".to_owned() } else { format!("line {n}\n") }).collect();
        let lines: Vec<String> =
            split_text(&text).iter().flat_map(|(_, part)| part.lines().map(str::to_owned)).collect();
        let lines: Vec<&String> = lines.iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>());
    }
}
