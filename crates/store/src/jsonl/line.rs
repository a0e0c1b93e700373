//! Formatting and parsing of one line of a tape file.

use std::io::{self, Write};

use capstan_protocol::EntryId;
use capstan_tape::Entry;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Formats the line of an entry without its newline. Non-ASCII text is not escaped, and `,` and `:` are followed by a
/// space, as in the files of Bub.
///
/// ```
/// use capstan_tape::Entry;
///
/// let line = r#"{"id": 1, "kind": "event", "payload": {"name": "你好"}, "meta": {}, "date": "2026-11-15"}"#;
/// let entry: Entry = serde_json::from_str(line)?;
/// assert_eq!(capstan_store::jsonl::format_line(&entry), line);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn format_line(entry: &Entry) -> String {
    let mut line = Vec::new();
    // An entry consists of strings, numbers, lists and maps with string keys, so serialization cannot fail.
    let written = entry.serialize(&mut Serializer::with_formatter(&mut line, SpacedFormatter));
    debug_assert!(written.is_ok());
    String::from_utf8(line).unwrap_or_default()
}

/// Parses the entry of a line.
pub(super) fn parse_line(line: &[u8]) -> serde_json::Result<Entry> {
    serde_json::from_slice(line)
}

/// Returns true for a line of white space.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Reads the id of a line that starts with it, without parsing the rest.
pub(super) fn peek_id(line: &[u8]) -> Option<EntryId> {
    let rest = line.strip_prefix(b"{\"id\":")?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_complete = matches!(rest.get(digits), Some(b',' | b' '));
    std::str::from_utf8(&rest[..digits]).ok().filter(|_| is_complete)?.parse().ok().map(EntryId)
}

/// JSON formatter with a space after each separator.
struct SpacedFormatter;

impl Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::peek_id;
    use capstan_protocol::EntryId;

    #[test]
    fn id_is_only_peeked_if_it_is_complete() {
        assert_eq!(peek_id(br#"{"id": 12, "kind": "#), Some(EntryId(12)));
        assert_eq!(peek_id(br#"{"id":12,"kind":"x"}"#), Some(EntryId(12)));
        assert_eq!(peek_id(br#"{"id": 12"#), None);
        assert_eq!(peek_id(br#"{"id": 12.5, "kind""#), None);
        assert_eq!(peek_id(br#"{"kind": "x", "id": 12}"#), None);
    }
}
