//! `[[slow:MILLISECONDS]]` markers, which slow down the demo model.

use std::time::Duration;

const PAUSE_MARKER_START: &str = "[[slow:";
const PAUSE_MARKER_END: &str = "]]";
/// Maximum pause.
const MAX_WORD_PAUSE: Duration = Duration::from_secs(5);

/// Removes the first pause marker from `text` and returns its pause. A malformed marker stays in the text.
pub(super) fn take_pause(text: &mut String) -> Option<Duration> {
    let start = text.find(PAUSE_MARKER_START)?;
    let inside = &text[start + PAUSE_MARKER_START.len()..];
    let length = inside.find(PAUSE_MARKER_END)?;
    let milliseconds = inside[..length].trim().parse().ok()?;
    let end = start + PAUSE_MARKER_START.len() + length + PAUSE_MARKER_END.len();
    text.replace_range(start..end, "");
    Some(Duration::from_millis(milliseconds).min(MAX_WORD_PAUSE))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::take_pause;

    #[test]
    fn a12_marker_sets_the_pause() {
        let mut text = "one [[slow:200]]two".to_owned();
        assert_eq!((take_pause(&mut text), text.as_str()), (Some(Duration::from_millis(200)), "one two"));
        let mut text = "[[slow:999999]]".to_owned();
        assert_eq!(take_pause(&mut text), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a12_malformed_marker_stays_in_the_text() {
        for text in ["[[slow:x]]", "[[slow:1", "[[slow]]", "slow:1]]"] {
            let mut rest = text.to_owned();
            assert_eq!((take_pause(&mut rest), rest.as_str()), (None, text));
        }
    }
}
