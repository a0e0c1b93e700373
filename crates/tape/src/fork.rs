//! Merging a fork back into its parent.

use capstan_protocol::EntryId;
use serde_json::Value;

use crate::{Entry, EntryDraft, EntryKind, EntryRef, ForkPoint, meta_keys};

/// The entries of a fork as they join its parent: new ids, and references among them translated.
///
/// The drafts must be appended in one batch, `first` being the position of the first of them.
pub fn merge_drafts(fork: &ForkPoint, entries: &[Entry], first: usize) -> Vec<EntryDraft> {
    let translate = |id: EntryId| {
        if id <= fork.position {
            return Some(EntryRef::Id(id));
        }
        let offset = entries.iter().position(|entry| entry.id == id)?;
        Some(EntryRef::InBatch(first + offset))
    };
    let draft = |entry: &Entry| {
        let names = entry.named_messages();
        let mut draft = EntryDraft::from(entry.clone());
        if !names.is_empty() {
            // An id of the fork means another entry on the parent.
            draft.meta.shift_remove(meta_keys::MESSAGES);
        }
        draft.with_named_messages(names.into_iter().filter_map(translate).collect())
    };
    entries.iter().map(draft).collect()
}

/// Whether the newest step on a tape still waits for results: nothing but events came after its calls.
///
/// `tail` is what stands on the tape from its newest `tool_call` on.
pub(crate) fn has_open_call(tail: &[Entry]) -> bool {
    let Some((call, rest)) = tail.split_first().filter(|(first, _)| first.kind == EntryKind::ToolCall) else {
        return false;
    };
    let is_over = |entry: &Entry| matches!(entry.kind, EntryKind::Message | EntryKind::Anchor | EntryKind::ToolCall);
    if rest.iter().any(is_over) {
        return false;
    }
    let count = |entry: &Entry, key: &str| entry.payload.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    let results: usize = rest.iter().filter(|e| e.kind == EntryKind::ToolResult).map(|e| count(e, "results")).sum();
    results < count(call, "calls")
}
