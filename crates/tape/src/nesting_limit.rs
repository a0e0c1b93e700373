//! How deep what is kept may be nested.

use serde_json::Value;

use crate::{EntryDraft, StoreError};

/// How deep a value may be nested that a tape or a space takes. JSON is only read back to a depth of 127, and a deeper one
/// would make the whole tape unreadable.
pub const MAX_NESTING_DEPTH: usize = 120;

/// What stands in the place of what is nested too deep.
const NESTING_PLACEHOLDER: &str = "[left out: it was nested too deep to be kept]";

/// Whether a value is nested deeper than so many levels: a text has none, an empty list one.
pub fn is_deeper_than(value: &Value, than: usize) -> bool {
    match value {
        Value::Array(items) => than == 0 || items.iter().any(|item| is_deeper_than(item, than - 1)),
        Value::Object(map) => than == 0 || map.values().any(|item| is_deeper_than(item, than - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

pub(crate) fn is_too_deep(value: &Value) -> bool {
    is_deeper_than(value, MAX_NESTING_DEPTH)
}

pub(crate) fn too_deep_error(what: String) -> StoreError {
    StoreError::NestedTooDeep { what, most: MAX_NESTING_DEPTH }
}

impl EntryDraft {
    /// The entry as a tape takes it: a word stands in the place of what is nested too deep, however deep it is in there.
    ///
    /// Whoever hands such a thing over is refused long before. This is for whoever writes: an entry that no store takes
    /// would keep everything that is written with it from being kept.
    #[must_use]
    pub fn limit_nesting(mut self) -> Self {
        let values = self.meta.values_mut().chain(self.extra.values_mut());
        for value in std::iter::once(&mut self.payload).chain(values) {
            if is_too_deep(value) {
                tracing::warn!(kind = %self.kind, "an entry was nested too deep to be kept whole");
                truncate_nesting(value, MAX_NESTING_DEPTH);
            }
        }
        self
    }
}

/// Puts a word in the place of what is deeper than so many levels.
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
    fn p01_an_entry_that_no_store_would_take_is_cut_where_it_is_too_deep() {
        let as_deep_as_may_be = EntryDraft::event("deep", nested_array(MAX_NESTING_DEPTH - 1))
            .with_meta("provider", nested_array(MAX_NESTING_DEPTH));
        assert_eq!(as_deep_as_may_be.clone().limit_nesting(), as_deep_as_may_be);
        let deeper = EntryDraft::event("deeper", nested_array(MAX_NESTING_DEPTH + 5))
            .with_meta("provider", nested_array(MAX_NESTING_DEPTH + 1))
            .limit_nesting();
        assert_eq!(deeper.payload["name"], "deeper", "what is beside it stays");
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
