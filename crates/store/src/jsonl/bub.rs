//! Conversion of tapes to the format of Bub: one result entry per step, matched to the calls by position.

use std::collections::HashMap;

use capstan_protocol::EntryId;
use capstan_tape::conversation::INTERRUPTED_RESULT;
use capstan_tape::{Entry, EntryKind, meta_keys};
use serde_json::{Value, json};

/// Joins the results of each step into one entry right after its `tool_call`, in the order of the calls.
///
/// Bub matches results to calls by position alone, so a call without a result gets a placeholder, and a result that
/// belongs to no call of its step is omitted. A step without any result is not changed. Ids stay increasing: if the
/// results of a step came after other entries, the ids of those entries move by one.
pub fn to_bub_format(entries: &[Entry]) -> Vec<Entry> {
    let mut joined: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut step: Option<BubToolStep> = None;
    for entry in entries {
        match (&entry.kind, &mut step) {
            (EntryKind::ToolResult, Some(step)) => step.push_results(entry, &mut joined),
            (kind, _) => {
                joined.push(entry.clone());
                if *kind == EntryKind::ToolCall {
                    step = BubToolStep::new(entry, joined.len());
                }
            }
        }
    }
    renumber(joined)
}

/// Calls of one `tool_call` entry.
struct BubToolStep {
    call_ids: Vec<Option<String>>,
    is_answered: Vec<bool>,
    /// Index of the joined result.
    result_index: usize,
    has_result: bool,
}

impl BubToolStep {
    fn new(call: &Entry, result_index: usize) -> Option<Self> {
        let calls = call.payload.get("calls").and_then(Value::as_array);
        let id = |call: &Value| call.get("id").and_then(Value::as_str).map(str::to_owned);
        let call_ids: Vec<Option<String>> = calls.into_iter().flatten().map(id).collect();
        let is_answered = vec![false; call_ids.len()];
        (!call_ids.is_empty()).then_some(Self { call_ids, is_answered, result_index, has_result: false })
    }

    fn push_results(&mut self, entry: &Entry, joined: &mut Vec<Entry>) {
        if !self.has_result {
            self.has_result = true;
            joined.insert(self.result_index, self.placeholder_result(entry));
        }
        let results = entry.payload.get("results").and_then(Value::as_array);
        let ids = entry.payload.get("call_ids").and_then(Value::as_array);
        for (position, result) in results.into_iter().flatten().enumerate() {
            let id = ids.and_then(|ids| ids.get(position)).and_then(Value::as_str);
            if let Some(call) = self.match_call(id) {
                joined[self.result_index].payload["results"][call] = result.clone();
            }
        }
    }

    /// Finds the call that a result belongs to: by id, or the first without a result.
    fn match_call(&mut self, id: Option<&str>) -> Option<usize> {
        let is_match = |call: &usize| id.is_none() || self.call_ids[*call].as_deref() == id;
        let call = (0..self.call_ids.len()).filter(|call| !self.is_answered[*call]).find(is_match)?;
        self.is_answered[call] = true;
        Some(call)
    }

    fn placeholder_result(&self, first: &Entry) -> Entry {
        let mut joined = first.clone();
        if !joined.payload.is_object() {
            joined.payload = json!({});
        }
        if let Some(payload) = joined.payload.as_object_mut() {
            payload.shift_remove("call_ids");
        }
        joined.payload["results"] = Value::from(vec![INTERRUPTED_RESULT; self.call_ids.len()]);
        joined
    }
}

/// Assigns the same ids again in increasing order, and updates the messages that anchors name.
fn renumber(mut entries: Vec<Entry>) -> Vec<Entry> {
    if entries.is_sorted_by_key(|entry| entry.id) {
        return entries;
    }
    let mut ids: Vec<EntryId> = entries.iter().map(|entry| entry.id).collect();
    ids.sort_unstable();
    let new_ids: HashMap<EntryId, EntryId> = entries.iter().map(|entry| entry.id).zip(ids.iter().copied()).collect();
    for (entry, id) in entries.iter_mut().zip(ids) {
        entry.id = id;
        let names = entry.named_messages();
        if !names.is_empty() {
            let renamed: Vec<EntryId> = names.iter().map(|name| *new_ids.get(name).unwrap_or(name)).collect();
            entry.meta.insert(meta_keys::MESSAGES.to_owned(), json!(renamed));
        }
    }
    entries
}
