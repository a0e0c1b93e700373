//! `[[tool:NAME key=value]]` markers, which request a call from the demo model.

use std::iter::Peekable;
use std::str::CharIndices;
use std::time::Duration;

use super::pause_marker;

const CALL_MARKER_START: &str = "[[tool:";

/// Requested call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallMarker {
    /// Tool name as written.
    pub name: String,
    /// Keys and values in order.
    pub arguments: Vec<(String, String)>,
}

/// Prompt split into markers and text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedPrompt {
    /// Requested calls in order.
    pub markers: Vec<CallMarker>,
    /// Text without the markers.
    pub rest: String,
    /// Pause before each word.
    pub word_pause: Option<Duration>,
}

/// Finds the markers in a text. A malformed marker (no end, unclosed quote, word that is not `key=value`) stays in the
/// text, where it is visible.
pub(super) fn parse_prompt(text: &str) -> ParsedPrompt {
    let mut parsed = ParsedPrompt::default();
    let mut remaining = text;
    while let Some(start) = remaining.find(CALL_MARKER_START) {
        parsed.rest.push_str(&remaining[..start]);
        let inside = &remaining[start + CALL_MARKER_START.len()..];
        let parsed_marker = split_words(inside).and_then(|(words, length)| Some((build_marker(words)?, length)));
        remaining = if let Some((marker, length)) = parsed_marker {
            parsed.markers.push(marker);
            &inside[length..]
        } else {
            parsed.rest.push_str(CALL_MARKER_START);
            inside
        };
    }
    parsed.rest.push_str(remaining);
    parsed.word_pause = pause_marker::take_pause(&mut parsed.rest);
    parsed
}

fn build_marker(words: Vec<String>) -> Option<CallMarker> {
    let mut words = words.into_iter();
    let name = words.next()?;
    let pair = |word: String| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let arguments = words.map(pair).collect::<Option<Vec<_>>>()?;
    arguments.iter().all(|(key, _)| !key.is_empty()).then_some(CallMarker { name, arguments })
}

/// Words up to `]]` with shell quotes resolved, and the number of bytes consumed including the end.
fn split_words(text: &str) -> Option<(Vec<String>, usize)> {
    let mut chars = text.char_indices().peekable();
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    while let Some((index, c)) = chars.next() {
        match c {
            ']' if chars.next_if(|(_, next)| *next == ']').is_some() => {
                words.extend(word);
                return Some((words, index + 2));
            }
            c if c.is_whitespace() => words.extend(word.take()),
            quote @ ('"' | '\'') => read_quoted(&mut chars, quote, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next()?.1),
            c => word.get_or_insert_default().push(c),
        }
    }
    None
}

/// Reads up to the closing quote. Inside double quotes, `\` escapes a quote and itself.
fn read_quoted(chars: &mut Peekable<CharIndices<'_>>, quote: char, word: &mut String) -> Option<()> {
    loop {
        match chars.next()?.1 {
            c if c == quote => return Some(()),
            '\\' if quote == '"' => match chars.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                Some((_, escaped)) => word.push(escaped),
                None => word.push('\\'),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CallMarker, ParsedPrompt, parse_prompt};

    fn build_marker(name: &str, arguments: &[(&str, &str)]) -> CallMarker {
        let arguments = arguments.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        CallMarker { name: name.to_owned(), arguments }
    }

    #[test]
    fn markers_are_found_in_order_and_removed_from_the_text() {
        let parsed = parse_prompt(r#"[[tool:bash cmd="echo one"]] [[tool:fs.read path=README.md]] go"#);
        assert_eq!(
            parsed.markers,
            [build_marker("bash", &[("cmd", "echo one")]), build_marker("fs.read", &[("path", "README.md")])]
        );
        assert_eq!(parsed.rest, "  go");
    }

    #[test]
    fn quotes_work_as_in_a_shell() {
        let text = r#"[[tool:x a='one "two"' b="three \"four\" \n \\" c=five\ six d="]]" e= f=a=b g=你"好 🐋"]]"#;
        let expected = [
            ("a", r#"one "two""#),
            ("b", r#"three "four" \n \"#),
            ("c", "five six"),
            ("d", "]]"),
            ("e", ""),
            ("f", "a=b"),
            ("g", "你好 🐋"),
        ];
        assert_eq!(parse_prompt(text).markers, [build_marker("x", &expected)]);
    }

    #[test]
    fn marker_may_have_no_arguments_and_span_lines() {
        assert_eq!(parse_prompt("[[tool:help]]").markers, [build_marker("help", &[])]);
        assert_eq!(
            parse_prompt("[[tool:x\n a=1\n b='2\n3']]").markers,
            [build_marker("x", &[("a", "1"), ("b", "2\n3")])]
        );
    }

    #[test]
    fn single_bracket_does_not_end_a_marker() {
        assert_eq!(parse_prompt("[[tool:x a=b[0]c]]").markers, [build_marker("x", &[("a", "b[0]c")])]);
    }

    #[test]
    fn malformed_marker_stays_in_the_text() {
        for text in ["[[tool:x a=1", "[[tool:x a=\"1]]", "[[tool:x word]]", "[[tool:]]", "[[tool:x =1]]", "[[x]]"] {
            assert_eq!(parse_prompt(text), ParsedPrompt { rest: text.to_owned(), ..ParsedPrompt::default() }, "{text}");
        }
        assert_eq!(parse_prompt("[[tool:x word]] [[tool:y]]").markers, [build_marker("y", &[])]);
    }
}
