//! Assembly of tool calls from streamed fragments.

use capstan_protocol::ToolCall;
use serde_json::Value;

/// Tool calls of one response, in the order in which they started.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    partial_calls: Vec<PartialCall>,
    /// Size of all calls.
    bytes: usize,
}

#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl CallAssembler {
    /// Adds a fragment. The search for its call is linear, so the caller stops at `MAX_REPLY_CALLS`.
    pub(super) fn push(&mut self, fragment: &Value) {
        let index = fragment["index"].as_u64();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, name) = (text(&fragment["id"]), text(&fragment["function"]["name"]));
        let arguments = match &fragment["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            // Some servers send an object instead of a string.
            object => object.to_string(),
        };
        // A fragment belongs to the call with its index. Servers that give all calls the same index give each call its own
        // id; servers that give no index send a name only at the start of a call.
        let belongs_to = |call: &&mut PartialCall| match (index, call.index) {
            (Some(index), Some(of)) => index == of && (id.is_empty() || call.id.is_empty() || id == call.id),
            _ => name.is_empty() && (id.is_empty() || id == call.id),
        };
        self.bytes += arguments.len();
        if let Some(call) = self.partial_calls.iter_mut().rev().find(belongs_to) {
            if call.id.is_empty() {
                self.bytes += id.len();
                call.id = id;
            }
            if call.name.is_empty() {
                self.bytes += name.len();
                call.name = name;
            }
            call.arguments.push_str(&arguments);
        } else {
            self.bytes += id.len() + name.len();
            self.partial_calls.push(PartialCall { index, id, name, arguments });
        }
    }

    /// Size of all calls, which grows with every fragment that adds something.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.partial_calls.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partial_calls.is_empty()
    }

    /// Completed calls; `None` if one has no name.
    pub(super) fn finish(self) -> Option<Vec<ToolCall>> {
        self.partial_calls.into_iter().enumerate().map(|(index, call)| complete_call(index, call)).collect()
    }
}

fn complete_call(index: usize, call: PartialCall) -> Option<ToolCall> {
    // Some servers send no id.
    let id = if call.id.is_empty() { format!("call_{index}") } else { call.id };
    (!call.name.is_empty()).then(|| ToolCall::new(id, call.name, call.arguments))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::ToolCall;
    use serde_json::{Value, json};

    use super::CallAssembler;

    fn assemble_calls(fragments: &[Value]) -> Option<Vec<ToolCall>> {
        let mut calls = CallAssembler::default();
        for fragment in fragments {
            calls.push(fragment);
        }
        calls.finish()
    }

    fn call_fragment(index: u64, id: &str, name: &str, arguments: &str) -> Value {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn arguments_are_joined_verbatim() {
        let fragments = [
            call_fragment(0, "a", "bash", ""),
            call_fragment(0, "", "", "{\"n\" :"),
            call_fragment(0, "", "", " 1.0}"),
        ];
        assert_eq!(assemble_calls(&fragments), Some(vec![ToolCall::new("a", "bash", "{\"n\" : 1.0}")]));
    }

    #[test]
    fn calls_keep_their_order_when_fragments_interleave() {
        let fragments = [
            call_fragment(0, "a", "x", "{"),
            call_fragment(1, "b", "y", "{"),
            call_fragment(0, "", "", "}"),
            call_fragment(1, "", "", " }"),
        ];
        let expected = vec![ToolCall::new("a", "x", "{}"), ToolCall::new("b", "y", "{ }")];
        assert_eq!(assemble_calls(&fragments), Some(expected));
    }

    #[test]
    fn calls_with_the_same_index_are_distinguished_by_id() {
        let fragments = [call_fragment(0, "a", "x", "{\"n\":1}"), call_fragment(0, "b", "x", "{\"n\":2}")];
        assert_eq!(assemble_calls(&fragments).map(|calls| calls.len()), Some(2));
    }

    #[test]
    fn calls_without_an_index_start_with_their_name() {
        let begin = |id: &str| json!({"id": id, "function": {"name": "x", "arguments": "{"}});
        let end = json!({"function": {"arguments": "}"}});
        let expected = vec![ToolCall::new("a", "x", "{}"), ToolCall::new("b", "x", "{}")];
        assert_eq!(assemble_calls(&[begin("a"), end.clone(), begin("b"), end]), Some(expected));
    }

    #[test]
    fn missing_id_is_filled_in_but_a_missing_name_is_an_error() {
        assert_eq!(assemble_calls(&[call_fragment(0, "", "x", "{}")]), Some(vec![ToolCall::new("call_0", "x", "{}")]));
        assert_eq!(assemble_calls(&[call_fragment(0, "a", "", "{}")]), None);
        let object = json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": {"n": 1}}});
        assert_eq!(assemble_calls(&[object]), Some(vec![ToolCall::new("a", "x", "{\"n\":1}")]));
    }
}
