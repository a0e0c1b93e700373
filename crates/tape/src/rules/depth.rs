//! How deep what is kept may be nested.

use serde_json::Value;

use crate::StoreError;

/// How deep a value may be nested. JSON is only read back to a depth of 127, and a deeper one would make the whole tape
/// unreadable.
const DEEPEST: usize = 120;

pub(super) fn is_too_deep(value: &Value) -> bool {
    fn is_deeper(value: &Value, than: usize) -> bool {
        let mut inside: Box<dyn Iterator<Item = &Value>> = match value {
            Value::Array(items) => Box::new(items.iter()),
            Value::Object(map) => Box::new(map.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
        };
        than == 0 || inside.any(|value| is_deeper(value, than - 1))
    }
    is_deeper(value, DEEPEST)
}

pub(super) fn too_deep(what: String) -> StoreError {
    StoreError::corrupt(what, format!("it is nested deeper than {DEEPEST} levels"))
}
