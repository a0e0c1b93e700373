//! Arguments of a demo call, typed by the tool's schema.

use capstan_protocol::JsonObject;
use serde_json::Value;

/// Arguments as a JSON object: strings, except where the schema allows a number or a boolean and the value parses.
pub(super) fn typed_arguments(arguments: &[(String, String)], schema: Option<&Value>) -> JsonObject {
    let pair = |(key, value): &(String, String)| {
        let property = schema.and_then(|schema| schema.get("properties")?.get(key));
        (key.clone(), parse_typed_value(value, property))
    };
    arguments.iter().map(pair).collect()
}

fn parse_typed_value(text: &str, property: Option<&Value>) -> Value {
    let fits = |value: &Value| property.is_some_and(|property| schema_allows(property, value));
    match serde_json::from_str(text) {
        Ok(value) if fits(&value) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// True if the schema of a property allows the type of this number or boolean.
fn schema_allows(property: &Value, value: &Value) -> bool {
    let is_named = |name: &Value| match name.as_str() {
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => false,
    };
    let has_type = match property.get("type") {
        Some(Value::Array(names)) => names.iter().any(is_named),
        Some(name) => is_named(name),
        None => false,
    };
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| property.get(key)?.as_array()).flatten();
    has_type || alternatives.into_iter().any(|alternative| schema_allows(alternative, value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::typed_arguments;

    fn parse_as(property: &Value, value: &str) -> Value {
        let schema = json!({"type": "object", "properties": {"key": property}});
        typed_arguments(&[("key".to_owned(), value.to_owned())], Some(&schema))["key"].clone()
    }

    #[test]
    fn numbers_and_booleans_are_typed_by_the_schema() {
        assert_eq!(parse_as(&json!({"type": "integer"}), "30"), json!(30));
        assert_eq!(parse_as(&json!({"type": "number"}), "1.5"), json!(1.5));
        assert_eq!(parse_as(&json!({"type": "boolean"}), "true"), json!(true));
        assert_eq!(parse_as(&json!({"type": ["integer", "null"]}), "30"), json!(30));
        assert_eq!(parse_as(&json!({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), "false"), json!(false));
    }

    #[test]
    fn all_other_values_are_strings() {
        assert_eq!(parse_as(&json!({"type": "string"}), "30"), json!("30"));
        assert_eq!(parse_as(&json!({"type": "integer"}), "1.5"), json!("1.5"));
        assert_eq!(parse_as(&json!({"type": "integer"}), "many"), json!("many"));
        assert_eq!(parse_as(&json!({"type": "boolean"}), "1"), json!("1"));
        assert_eq!(parse_as(&json!({}), "30"), json!("30"));
        assert_eq!(Value::Object(typed_arguments(&[("k".to_owned(), "true".to_owned())], None)), json!({"k": "true"}));
    }
}
