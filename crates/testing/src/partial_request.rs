//! Partial parsing of a request by a server that must answer at once.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Keys of the conversation in the protocols.
const CONVERSATION_KEYS: [&str; 3] = ["messages", "contents", "input"];

/// Parses a request without its tools, and with only the newest message of its conversation.
pub(crate) fn read_without_history(body: &[u8]) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let request = json.deserialize_map(PartialRequestVisitor)?;
    json.end()?;
    Ok(Value::Object(request))
}

struct PartialRequestVisitor;

impl<'de> Visitor<'de> for PartialRequestVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut request = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == "tools" {
                fields.next_value::<IgnoredAny>()?;
            } else if CONVERSATION_KEYS.contains(&name.as_str()) {
                let LastElement(newest) = fields.next_value()?;
                request.insert(name, Value::Array(newest.into_iter().collect()));
            } else {
                let value = fields.next_value()?;
                request.insert(name, value);
            }
        }
        Ok(request)
    }
}

/// Last element of a list.
struct LastElement(Option<Value>);

impl<'de> serde::Deserialize<'de> for LastElement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LastElementVisitor)
    }
}

struct LastElementVisitor;

impl<'de> Visitor<'de> for LastElementVisitor {
    type Value = LastElement;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<LastElement, A::Error> {
        let mut newest = None;
        while let Some(element) = elements.next_element()? {
            newest = Some(element);
        }
        Ok(LastElement(newest))
    }
}
