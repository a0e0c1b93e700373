//! What a server reads of a request that is to answer at once.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What the protocols call the conversation.
const CONVERSATIONS: [&str; 3] = ["messages", "contents", "input"];

/// A request without its tools, and with no more of its conversation than the newest message.
pub(crate) fn read(body: &[u8]) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let request = json.deserialize_map(Request)?;
    json.end()?;
    Ok(Value::Object(request))
}

struct Request;

impl<'de> Visitor<'de> for Request {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut request = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == "tools" {
                fields.next_value::<IgnoredAny>()?;
            } else if CONVERSATIONS.contains(&name.as_str()) {
                let Newest(newest) = fields.next_value()?;
                request.insert(name, Value::Array(newest.into_iter().collect()));
            } else {
                let value = fields.next_value()?;
                request.insert(name, value);
            }
        }
        Ok(request)
    }
}

/// The last of a list.
struct Newest(Option<Value>);

impl<'de> serde::Deserialize<'de> for Newest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Newest;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Newest, A::Error> {
        let mut newest = None;
        while let Some(item) = items.next_element()? {
            newest = Some(item);
        }
        Ok(Newest(newest))
    }
}
