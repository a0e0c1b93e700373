//! Truncation of texts.

/// Returns at most `max_chars` characters of a text, followed by a marker if characters were cut off.
///
/// ```
/// # use capstan_protocol::truncate_chars;
/// assert_eq!(truncate_chars("größer", 3, "…"), "grö…");
/// assert_eq!(truncate_chars("größer", 6, "…"), "größer");
/// ```
pub fn truncate_chars(text: &str, max_chars: usize, marker: &str) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}{marker}", &text[..end]),
        None => text.to_owned(),
    }
}

/// Shortens a text to at most `max_bytes`, at a character boundary, and adds a marker if something was cut off. Returns
/// whether it was.
///
/// ```
/// # use capstan_protocol::truncate_bytes;
/// let mut text = "größer".to_owned();
/// assert!(truncate_bytes(&mut text, 3, "..."));
/// assert_eq!(text, "gr...");
/// ```
pub fn truncate_bytes(text: &mut String, max_bytes: usize, marker: &str) -> bool {
    if text.len() <= max_bytes {
        return false;
    }
    text.truncate(text.floor_char_boundary(max_bytes));
    text.push_str(marker);
    true
}
