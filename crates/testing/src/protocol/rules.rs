//! Rules shared by several protocols.

use std::collections::HashSet;

use serde_json::Value;

pub(super) use crate::grammar::is_valid_tool_name;

/// Violations found up to now.
#[derive(Default)]
pub(super) struct ViolationList(pub(super) Vec<String>);

impl ViolationList {
    pub(super) fn require(&mut self, is_met: bool, message: impl FnOnce() -> String) {
        if !is_met {
            self.0.push(message());
        }
    }

    pub(super) fn require_text(&mut self, body: &Value, key: &str) {
        self.require(body[key].as_str().is_some_and(|text| !text.is_empty()), || format!("there is no {key}"));
    }

    pub(super) fn require_stream(&mut self, body: &Value) {
        let message = || "stream is not true, and this server only streams".to_owned();
        self.require(body["stream"] == true, message);
    }

    /// Checks tools given as (name, schema of the arguments).
    pub(super) fn check_tools<'a>(&mut self, tools: impl Iterator<Item = (&'a Value, &'a Value)>) {
        let mut names = HashSet::new();
        for (name, schema) in tools {
            let name = name.as_str().unwrap_or_default();
            self.require(is_valid_tool_name(name), || format!("a tool has the invalid name {name:?}"));
            self.require(names.insert(name), || format!("two tools have the name {name:?}"));
            self.require(schema["type"] == "object", || format!("the tool {name} has no schema of an object"));
        }
    }
}

/// Returns the elements of a list, or none if the value is not a list.
pub(super) fn array_items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the text of a value, or an empty text.
pub(super) fn str_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns true if the arguments of a call are a JSON object in text form.
pub(super) fn is_arguments_object(value: &Value) -> bool {
    serde_json::from_str::<Value>(str_or_empty(value)).is_ok_and(|arguments| arguments.is_object())
}

/// Returns true for an image by URL, or inline in base64 with an accepted media type.
pub(super) fn is_image_url(url: &str) -> bool {
    match url.strip_prefix("data:").map(|inline| inline.split_once(";base64,")) {
        None => url.starts_with("http"),
        Some(inline) => inline.is_some_and(|(kind, data)| is_image_mime_type(kind) && !data.is_empty()),
    }
}

/// Returns true for media types accepted by all providers but Gemini, which has its own list.
pub(super) fn is_image_mime_type(kind: &str) -> bool {
    ["image/png", "image/jpeg", "image/webp", "image/gif"].contains(&kind)
}
