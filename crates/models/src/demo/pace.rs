//! `[[slow:MILLISECONDS]]`: how a person asks the demo model to take its time.

use std::time::Duration;

const OPENING: &str = "[[slow:";
const CLOSING: &str = "]]";
/// The longest pause there is.
const LONGEST: Duration = Duration::from_secs(5);

/// Takes the first such marker out of a text and gives the pause it asks for. One that is not well formed stays text.
pub(super) fn take(text: &mut String) -> Option<Duration> {
    let start = text.find(OPENING)?;
    let inside = &text[start + OPENING.len()..];
    let length = inside.find(CLOSING)?;
    let milliseconds = inside[..length].trim().parse().ok()?;
    let end = start + OPENING.len() + length + CLOSING.len();
    text.replace_range(start..end, "");
    Some(Duration::from_millis(milliseconds).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::take;

    #[test]
    fn a12_a_pause_is_asked_for_by_a_marker() {
        let mut text = "one [[slow:200]]two".to_owned();
        assert_eq!((take(&mut text), text.as_str()), (Some(Duration::from_millis(200)), "one two"));
        let mut text = "[[slow:999999]]".to_owned();
        assert_eq!(take(&mut text), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a12_what_is_no_such_marker_stays_text() {
        for text in ["[[slow:x]]", "[[slow:1", "[[slow]]", "slow:1]]"] {
            let mut left = text.to_owned();
            assert_eq!((take(&mut left), left.as_str()), (None, text));
        }
    }
}
