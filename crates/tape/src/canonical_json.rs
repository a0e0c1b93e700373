//! JSON text that does not depend on the order of keys, for hashes.

use capstan_protocol::JsonObject;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// JSON text with sorted keys, independent of their insertion order.
pub fn canonical_json(value: &Value) -> String {
    // Serialisation cannot fail, because all keys are strings.
    serde_json::to_string(&SortedJson(value)).unwrap_or_default()
}

/// Writes the text of [`canonical_json`] to a buffer.
pub(crate) fn write_canonical_json(buffer: &mut Vec<u8>, value: &Value) {
    // Writing to memory cannot fail, because all keys are strings.
    let _infallible = serde_json::to_writer(buffer, &SortedJson(value));
}

/// Writes an object like [`write_canonical_json`].
pub(crate) fn write_canonical_object(buffer: &mut Vec<u8>, object: &JsonObject) {
    let _infallible = serde_json::to_writer(buffer, &SortedObject(object));
}

/// Value that is serialised with sorted keys.
struct SortedJson<'a>(&'a Value);

/// Object that is serialised with sorted keys.
struct SortedObject<'a>(&'a JsonObject);

impl Serialize for SortedObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter().map(|(key, value)| (key.as_str(), SortedJson(value)));
        if self.0.keys().is_sorted() {
            return serializer.collect_map(pairs);
        }
        let mut pairs: Vec<(&str, SortedJson<'_>)> = pairs.collect();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        serializer.collect_map(pairs)
    }
}

impl Serialize for SortedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => SortedObject(map).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(SortedJson)),
            plain => plain.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::canonical_json;
    use serde_json::json;

    #[test]
    fn canonical_json_ignores_the_order_of_keys() {
        let a = json!({"b": [{"y": 1, "x": 2}], "a": null});
        let b = json!({"a": null, "b": [{"x": 2, "y": 1}]});
        assert_eq!(canonical_json(&a), canonical_json(&b));
        assert_eq!(canonical_json(&b), r#"{"a":null,"b":[{"x":2,"y":1}]}"#);
    }
}
