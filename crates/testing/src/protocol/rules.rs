//! Rules that several protocols share.

use std::collections::HashSet;

use serde_json::Value;

pub(super) use crate::grammar::is_valid_tool_name;

/// What has been found wrong so far.
#[derive(Default)]
pub(super) struct ViolationList(pub(super) Vec<String>);

impl ViolationList {
    pub(super) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }

    pub(super) fn require_text(&mut self, body: &Value, key: &str) {
        self.require(body[key].as_str().is_some_and(|text| !text.is_empty()), || format!("there is no {key}"));
    }

    pub(super) fn require_stream(&mut self, body: &Value) {
        let what = || "it does not ask for a stream, and this server only streams".to_owned();
        self.require(body["stream"] == true, what);
    }

    /// Tools as (name, schema of the arguments), in the place each protocol has them.
    pub(super) fn check_tools<'a>(&mut self, tools: impl Iterator<Item = (&'a Value, &'a Value)>) {
        let mut names = HashSet::new();
        for (name, schema) in tools {
            let name = name.as_str().unwrap_or_default();
            self.require(is_valid_tool_name(name), || format!("a tool has the name {name:?}, which is not taken"));
            self.require(names.insert(name), || format!("two tools have the name {name:?}"));
            self.require(schema["type"] == "object", || format!("the tool {name} has no schema of an object"));
        }
    }
}

/// The elements of a list; none where there is no list.
pub(super) fn array_items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The text of a value; empty where it is none.
pub(super) fn str_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether the arguments of a call are the text of an object.
pub(super) fn is_arguments_object(value: &Value) -> bool {
    serde_json::from_str::<Value>(str_or_empty(value)).is_ok_and(|arguments| arguments.is_object())
}

/// Whether an image is at an address, or whole in base64 and of a kind that is taken.
pub(super) fn is_image_url(url: &str) -> bool {
    match url.strip_prefix("data:").map(|inline| inline.split_once(";base64,")) {
        None => url.starts_with("http"),
        Some(inline) => inline.is_some_and(|(kind, data)| is_image_mime_type(kind) && !data.is_empty()),
    }
}

/// Whether an image of this kind is taken by all but Gemini, which has its own list.
pub(super) fn is_image_mime_type(kind: &str) -> bool {
    ["image/png", "image/jpeg", "image/webp", "image/gif"].contains(&kind)
}
