//! Conversations as turns with alternating roles, for protocols that require them.

use capstan_tape::conversation::CONTINUED_NOTICE;
use serde_json::Value;

use super::message_parts::EMPTY_MESSAGE_NOTE;

/// Role of the user in every protocol with alternating turns.
pub(super) const USER_ROLE: &str = "user";

/// Merges consecutive parts of one role into turns that begin and end with the user; empty parts are omitted. A note made
/// by `text_part` stands in for a missing first or last user turn.
pub(super) fn alternate_turns(
    parts: impl Iterator<Item = (&'static str, Vec<Value>)>,
    text_part: impl Fn(&str) -> Value,
) -> Vec<(&'static str, Vec<Value>)> {
    let mut turns: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for (role, parts) in parts.filter(|(_, parts)| !parts.is_empty()) {
        if turns.is_empty() && role != USER_ROLE {
            turns.push((USER_ROLE, vec![text_part(CONTINUED_NOTICE)]));
        }
        match turns.last_mut() {
            Some((last, present)) if *last == role => present.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    if turns.last().is_none_or(|(role, _)| *role != USER_ROLE) {
        turns.push((USER_ROLE, vec![text_part(EMPTY_MESSAGE_NOTE)]));
    }
    turns
}
