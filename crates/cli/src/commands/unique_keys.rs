//! JSON values without duplicate keys. `serde_json::Value` would keep one of two values silently.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value whose objects have each key once.
pub(super) struct UniqueKeysValue(pub(super) Value);

impl<'de> Deserialize<'de> for UniqueKeysValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeysValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<UniqueKeysValue, E> {
        Ok(UniqueKeysValue(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<UniqueKeysValue, E> {
        Ok(UniqueKeysValue(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<UniqueKeysValue, E> {
        Ok(UniqueKeysValue(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<UniqueKeysValue, E> {
        Ok(UniqueKeysValue(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<UniqueKeysValue, E> {
        Ok(UniqueKeysValue(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<UniqueKeysValue, E> {
        Ok(UniqueKeysValue(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<UniqueKeysValue, A::Error> {
        let mut array = Vec::new();
        while let Some(UniqueKeysValue(value)) = values.next_element()? {
            array.push(value);
        }
        Ok(UniqueKeysValue(Value::Array(array)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<UniqueKeysValue, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate field {name}")));
            }
            let UniqueKeysValue(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(UniqueKeysValue(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::UniqueKeysValue;

    #[test]
    fn g01_duplicate_field_is_rejected_at_every_depth() {
        let read = |text: &str| {
            serde_json::from_str::<UniqueKeysValue>(text).map(|value| value.0).map_err(|error| error.to_string())
        };
        let whole = r#"{"a": [1, -2, 0.5, "x", null, true, {"a": {}}], "b": {"a": []}}"#;
        assert_eq!(read(whole), Ok(serde_json::from_str::<Value>(whole).unwrap()));
        for twice in [r#"{"a": 1, "a": 1}"#, r#"{"b": {"a": 1, "a": 2}}"#, r#"[{"a": 1, "\u0061": 2}]"#] {
            assert!(read(twice).unwrap_err().starts_with("duplicate field a"), "{twice}");
        }
    }
}
