//! Putting tool calls together from their fragments.

use capstan_protocol::ToolCall;
use serde_json::Value;

/// The calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    partial_calls: Vec<PartialCall>,
}

#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl CallAssembler {
    /// Takes a fragment in.
    pub(super) fn push(&mut self, fragment: &Value) {
        let index = fragment["index"].as_u64();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, name) = (text(&fragment["id"]), text(&fragment["function"]["name"]));
        let arguments = match &fragment["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            // Some servers send the object itself.
            object => object.to_string(),
        };
        // A fragment goes on with the call of its index. Servers that number all calls alike give each an id of its own,
        // and those that give no number send a name only where a call begins.
        let goes_on = |begun: &&mut PartialCall| match (index, begun.index) {
            (Some(index), Some(of)) => index == of && (id.is_empty() || begun.id.is_empty() || id == begun.id),
            _ => name.is_empty() && (id.is_empty() || id == begun.id),
        };
        match self.partial_calls.iter_mut().rev().find(goes_on) {
            Some(begun) => {
                if begun.id.is_empty() {
                    begun.id = id;
                }
                if begun.name.is_empty() {
                    begun.name = name;
                }
                begun.arguments.push_str(&arguments);
            }
            None => self.partial_calls.push(PartialCall { index, id, name, arguments }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partial_calls.is_empty()
    }

    /// The calls; `None` if one has no name.
    pub(super) fn finish(self) -> Option<Vec<ToolCall>> {
        self.partial_calls.into_iter().enumerate().map(|(index, begun)| complete_call(index, begun)).collect()
    }
}

fn complete_call(index: usize, begun: PartialCall) -> Option<ToolCall> {
    // Some servers leave the id empty.
    let id = if begun.id.is_empty() { format!("call_{index}") } else { begun.id };
    (!begun.name.is_empty()).then(|| ToolCall::new(id, begun.name, begun.arguments))
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
    fn arguments_are_joined_as_the_model_wrote_them() {
        let fragments = [
            call_fragment(0, "a", "bash", ""),
            call_fragment(0, "", "", "{\"n\" :"),
            call_fragment(0, "", "", " 1.0}"),
        ];
        assert_eq!(assemble_calls(&fragments), Some(vec![ToolCall::new("a", "bash", "{\"n\" : 1.0}")]));
    }

    #[test]
    fn calls_keep_their_order_also_when_their_fragments_mix() {
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
    fn calls_that_all_have_one_number_are_told_apart_by_their_ids() {
        let fragments = [call_fragment(0, "a", "x", "{\"n\":1}"), call_fragment(0, "b", "x", "{\"n\":2}")];
        assert_eq!(assemble_calls(&fragments).map(|calls| calls.len()), Some(2));
    }

    #[test]
    fn calls_without_numbers_begin_with_their_names() {
        let begin = |id: &str| json!({"id": id, "function": {"name": "x", "arguments": "{"}});
        let end = json!({"function": {"arguments": "}"}});
        let expected = vec![ToolCall::new("a", "x", "{}"), ToolCall::new("b", "x", "{}")];
        assert_eq!(assemble_calls(&[begin("a"), end.clone(), begin("b"), end]), Some(expected));
    }

    #[test]
    fn missing_ids_are_filled_in_and_missing_names_are_not() {
        assert_eq!(assemble_calls(&[call_fragment(0, "", "x", "{}")]), Some(vec![ToolCall::new("call_0", "x", "{}")]));
        assert_eq!(assemble_calls(&[call_fragment(0, "a", "", "{}")]), None);
        let object = json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": {"n": 1}}});
        assert_eq!(assemble_calls(&[object]), Some(vec![ToolCall::new("a", "x", "{\"n\":1}")]));
    }
}
