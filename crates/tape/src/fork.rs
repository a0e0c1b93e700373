//! Merging of forks into their parent.

use capstan_protocol::EntryId;
use serde_json::Value;

use crate::{Entry, EntryDraft, EntryKind, EntryRef, ForkPoint, meta_keys};

/// Drafts that append the entries of a fork to its parent, with references among the entries translated to new ids.
///
/// The drafts must be appended in one batch, the first of them at position `first`.
pub fn merge_drafts(fork: &ForkPoint, entries: &[Entry], first: usize) -> Vec<EntryDraft> {
    let translate = |id: EntryId| {
        if id <= fork.position {
            return Some(EntryRef::Id(id));
        }
        let offset = entries.iter().position(|entry| entry.id == id)?;
        Some(EntryRef::InBatch(first + offset))
    };
    let draft = |entry: &Entry| {
        let named = entry.named_messages();
        let mut draft = EntryDraft::from(entry.clone());
        if !named.is_empty() {
            // Ids of the fork refer to other entries on the parent.
            draft.meta.shift_remove(meta_keys::MESSAGES);
        }
        draft.with_named_messages(named.into_iter().filter_map(translate).collect())
    };
    entries.iter().map(draft).collect()
}

/// Returns true if the newest step of a tape still waits for results: only events and results follow its calls.
///
/// `tail` begins with the newest `tool_call` of the tape.
pub(crate) fn has_open_call(tail: &[Entry]) -> bool {
    let Some((call, rest)) = tail.split_first().filter(|(first, _)| first.kind == EntryKind::ToolCall) else {
        return false;
    };
    let ends_step = |entry: &Entry| matches!(entry.kind, EntryKind::Message | EntryKind::Anchor | EntryKind::ToolCall);
    if rest.iter().any(ends_step) {
        return false;
    }
    let count = |entry: &Entry, key: &str| entry.payload.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    let results: usize = rest.iter().filter(|e| e.kind == EntryKind::ToolResult).map(|e| count(e, "results")).sum();
    results < count(call, "calls")
}
