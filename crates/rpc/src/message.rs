//! Messages of JSON-RPC 2.0: parsing and encoding.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::RpcError;

/// Maximum length of a textual id, in bytes.
const MAX_ID_LEN: usize = 128;
/// Largest numeric id.
const MAX_NUMERIC_ID: u64 = (1 << 53) - 1;

/// Id of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum RequestId {
    /// Number.
    Number(u64),
    /// Text.
    Text(String),
}

impl RequestId {
    /// Reads an id from JSON.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_u64().filter(|id| *id <= MAX_NUMERIC_ID).map(Self::Number),
            Value::String(text) if text.len() <= MAX_ID_LEN => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    fn from_raw(raw: &RawValue) -> Option<Self> {
        // Two characters for each one of the text, as an escape, and the quotation marks.
        if raw.get().len() > 6 * MAX_ID_LEN + 2 {
            return None;
        }
        serde_json::from_str(raw.get()).ok().and_then(|value| Self::from_json(&value))
    }
}

/// Message that was received.
#[derive(Debug)]
pub(crate) enum InputMessage {
    Request { id: RequestId, method: String, params: Box<RawValue> },
    Notification { method: String, params: Box<RawValue> },
    Answer { id: RequestId, result: Result<Box<RawValue>, RpcError> },
}

/// Line that is no message.
#[derive(Debug)]
pub(crate) struct InvalidMessage {
    /// Id of a request with which the problem can be answered.
    pub(crate) id: Option<RequestId>,
    pub(crate) reason: String,
}

impl InvalidMessage {
    fn new(reason: impl Into<String>) -> Self {
        Self { id: None, reason: reason.into() }
    }
}

#[derive(Deserialize)]
struct MessageFields<'a> {
    #[serde(default, borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

/// Keeps `null` apart from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses a line.
pub(crate) fn parse_message(line: &[u8]) -> Result<InputMessage, InvalidMessage> {
    if line.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(InvalidMessage::new("it is no JSON object"));
    }
    let fields: MessageFields<'_> =
        serde_json::from_slice(line).map_err(|error| InvalidMessage::new(format!("it cannot be parsed: {error}")))?;
    let id = fields.id.map(RequestId::from_raw);
    let invalid = |reason: &str| {
        let id = id.clone().flatten().filter(|_| fields.method.is_some());
        InvalidMessage { id, reason: reason.to_owned() }
    };
    if fields.jsonrpc.as_deref() != Some("2.0") {
        return Err(invalid("it has not the version 2.0 of JSON-RPC"));
    }
    if let Some(method) = &fields.method {
        let params = match fields.params {
            None => empty_object(),
            Some(params) if params.get().starts_with('{') => params.to_owned(),
            Some(_) => return Err(invalid("its params are no object")),
        };
        let method = method.clone().into_owned();
        return match &id {
            None => Ok(InputMessage::Notification { method, params }),
            Some(Some(id)) => Ok(InputMessage::Request { id: id.clone(), method, params }),
            Some(None) => Err(invalid("its id is not valid")),
        };
    }
    let Some(Some(id)) = id else { return Err(invalid("it has neither a method nor a valid id")) };
    match (fields.result, fields.error) {
        (Some(result), None) => Ok(InputMessage::Answer { id, result: Ok(result.to_owned()) }),
        (None, Some(error)) => {
            let error = serde_json::from_str(error.get())
                .map_err(|error| InvalidMessage::new(format!("its error cannot be read: {error}")))?;
            Ok(InputMessage::Answer { id, result: Err(error) })
        }
        _ => Err(InvalidMessage::new("it has no method, and not exactly one of result and error")),
    }
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

#[derive(Serialize)]
struct OutputMessage<'a, P: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

/// Encodes a request, or a notification if there is no id. The line has no end.
pub(crate) fn encode_call(
    id: Option<&RequestId>,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, serde_json::Error> {
    let message =
        OutputMessage { jsonrpc: "2.0", id, method: Some(method), params: Some(params), result: None, error: None };
    serde_json::to_vec(&message)
}

/// Encodes an answer.
pub(crate) fn encode_answer(id: &RequestId, answer: Result<&RawValue, &RpcError>) -> Vec<u8> {
    let (result, error) = match answer {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error)),
    };
    let message = OutputMessage::<()> { jsonrpc: "2.0", id: Some(id), method: None, params: None, result, error };
    serde_json::to_vec(&message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{InputMessage, RequestId, parse_message};

    #[test]
    fn k06_messages_are_recognised_by_their_fields() {
        let parse = |text: &str| parse_message(text.as_bytes());
        let request = parse(r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"b":[1]},"odd":1}"#);
        assert!(matches!(request, Ok(InputMessage::Request { id: RequestId::Number(7), method, params })
            if method == "a" && params.get() == r#"{"b":[1]}"#));
        let notification = parse(r#"{"jsonrpc":"2.0","method":"a\u0062","params":null}"#);
        assert!(matches!(notification, Ok(InputMessage::Notification { method, params })
            if method == "ab" && params.get() == "{}"));
        let answer = parse(r#" {"jsonrpc":"2.0","id":"x","result":null}"#);
        assert!(matches!(answer, Ok(InputMessage::Answer { id: RequestId::Text(id), result: Ok(result) })
            if id == "x" && result.get() == "null"));
        let error = parse(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":{"a":1}}}"#);
        assert!(matches!(error, Ok(InputMessage::Answer { result: Err(error), .. }) if error.data.is_some()));
    }

    #[test]
    fn k06_a_line_that_is_no_message_is_refused_and_answered_if_it_can_be() {
        let refused = [
            ("", None),
            ("[]", None),
            ("[{\"jsonrpc\":\"2.0\",\"method\":\"a\"}]", None),
            ("{\"jsonrpc\":\"2.0\"}", None),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\"", None),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\"}{}", None),
            ("{\"jsonrpc\":\"2.0\",\"method\":7,\"id\":1}", None),
            ("{\"jsonrpc\":\"1.0\",\"method\":\"a\",\"id\":1}", Some(1)),
            ("{\"method\":\"a\",\"id\":1}", Some(1)),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":1,\"params\":[1]}", Some(1)),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":-1}", None),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":1.5}", None),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":null}", None),
            ("{\"jsonrpc\":\"2.0\",\"id\":1}", None),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{\"code\":1}}", None),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":7}", None),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":1}", None),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"\u{fffd}\",\"id\":{}}", None),
        ];
        for (line, id) in refused {
            let error = parse_message(line.as_bytes()).unwrap_err();
            assert_eq!(error.id, id.map(RequestId::Number), "{line}: {}", error.reason);
        }
        assert!(parse_message(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}").is_err());
        let long = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":\"{}\"}}", "x".repeat(129));
        assert!(parse_message(long.as_bytes()).is_err());
    }
}
