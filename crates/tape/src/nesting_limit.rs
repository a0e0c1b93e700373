//! Nesting limit of stored JSON values.

use serde_json::Value;

use crate::{EntryDraft, StoreError};

/// Maximum nesting depth of values on a tape or in a namespace. The JSON parser reads at most 127 levels, so a deeper
/// value would make the whole tape unreadable.
pub const MAX_NESTING_DEPTH: usize = 120;

/// Replacement for values that are nested too deeply.
const NESTING_PLACEHOLDER: &str = "[omitted: nested too deeply to be stored]";

/// Returns true if a value is nested deeper than this number of levels. A string has no level, an empty list has one.
pub fn is_deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper_than(item, levels - 1)),
        Value::Object(map) => levels == 0 || map.values().any(|item| is_deeper_than(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

pub(crate) fn is_too_deep(value: &Value) -> bool {
    is_deeper_than(value, MAX_NESTING_DEPTH)
}

pub(crate) fn too_deep_error(what: String) -> StoreError {
    StoreError::NestedTooDeep { what, max_depth: MAX_NESTING_DEPTH }
}

impl EntryDraft {
    /// Replaces values that are nested too deeply with a placeholder.
    ///
    /// Input of that depth is rejected at the boundaries of the host. This is the last defence of the writer: stores
    /// reject such an entry, and the whole batch with it.
    #[must_use]
    pub fn limit_nesting(mut self) -> Self {
        let values = self.meta.values_mut().chain(self.extra.values_mut());
        for value in std::iter::once(&mut self.payload).chain(values) {
            if is_too_deep(value) {
                tracing::warn!(kind = %self.kind, "truncated an entry that is nested too deeply");
                truncate_nesting(value, MAX_NESTING_DEPTH);
            }
        }
        self
    }
}

/// Replaces values below this number of levels.
fn truncate_nesting(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = Value::from(NESTING_PLACEHOLDER),
        Value::Array(items) => items.iter_mut().for_each(|item| truncate_nesting(item, levels - 1)),
        Value::Object(map) => map.values_mut().for_each(|item| truncate_nesting(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_NESTING_DEPTH, NESTING_PLACEHOLDER, is_deeper_than};
    use crate::EntryDraft;

    fn nested_array(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!([inner]))
    }

    #[test]
    fn p01_entry_that_is_nested_too_deeply_is_truncated() {
        let deepest = EntryDraft::event("deep", nested_array(MAX_NESTING_DEPTH - 1))
            .with_meta("provider", nested_array(MAX_NESTING_DEPTH));
        assert_eq!(deepest.clone().limit_nesting(), deepest);
        let deeper = EntryDraft::event("deeper", nested_array(MAX_NESTING_DEPTH + 5))
            .with_meta("provider", nested_array(MAX_NESTING_DEPTH + 1))
            .limit_nesting();
        assert_eq!(deeper.payload["name"], "deeper", "other values are unchanged");
        assert!(
            deeper.payload.to_string().contains(NESTING_PLACEHOLDER)
                && deeper.meta["provider"].to_string().contains(NESTING_PLACEHOLDER)
        );
        assert!(
            !is_deeper_than(&deeper.payload, MAX_NESTING_DEPTH)
                && !is_deeper_than(&deeper.meta["provider"], MAX_NESTING_DEPTH)
        );
    }
}
