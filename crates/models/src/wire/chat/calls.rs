//! Putting tool calls together from their fragments.

use capstan_protocol::ToolCall;
use serde_json::Value;

/// The calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    begun: Vec<Begun>,
}

#[derive(Debug)]
struct Begun {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
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
        let goes_on = |begun: &&mut Begun| match (index, begun.index) {
            (Some(index), Some(of)) => index == of && (id.is_empty() || begun.id.is_empty() || id == begun.id),
            _ => name.is_empty() && (id.is_empty() || id == begun.id),
        };
        match self.begun.iter_mut().rev().find(goes_on) {
            Some(begun) => {
                if begun.id.is_empty() {
                    begun.id = id;
                }
                if begun.name.is_empty() {
                    begun.name = name;
                }
                begun.arguments.push_str(&arguments);
            }
            None => self.begun.push(Begun { index, id, name, arguments }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// The calls; `None` if one has no name.
    pub(super) fn finish(self) -> Option<Vec<ToolCall>> {
        self.begun.into_iter().enumerate().map(|(index, begun)| whole(index, begun)).collect()
    }
}

fn whole(index: usize, begun: Begun) -> Option<ToolCall> {
    // Some servers leave the id empty.
    let id = if begun.id.is_empty() { format!("call_{index}") } else { begun.id };
    (!begun.name.is_empty()).then(|| ToolCall::new(id, begun.name, begun.arguments))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::ToolCall;
    use serde_json::{Value, json};

    use super::Calls;

    fn calls(fragments: &[Value]) -> Option<Vec<ToolCall>> {
        let mut calls = Calls::default();
        for fragment in fragments {
            calls.push(fragment);
        }
        calls.finish()
    }

    fn fragment(index: u64, id: &str, name: &str, arguments: &str) -> Value {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn arguments_are_joined_as_the_model_wrote_them() {
        let fragments = [fragment(0, "a", "bash", ""), fragment(0, "", "", "{\"n\" :"), fragment(0, "", "", " 1.0}")];
        assert_eq!(calls(&fragments), Some(vec![ToolCall::new("a", "bash", "{\"n\" : 1.0}")]));
    }

    #[test]
    fn calls_keep_their_order_also_when_their_fragments_mix() {
        let fragments = [
            fragment(0, "a", "x", "{"),
            fragment(1, "b", "y", "{"),
            fragment(0, "", "", "}"),
            fragment(1, "", "", " }"),
        ];
        let expected = vec![ToolCall::new("a", "x", "{}"), ToolCall::new("b", "y", "{ }")];
        assert_eq!(calls(&fragments), Some(expected));
    }

    #[test]
    fn calls_that_all_have_one_number_are_told_apart_by_their_ids() {
        let fragments = [fragment(0, "a", "x", "{\"n\":1}"), fragment(0, "b", "x", "{\"n\":2}")];
        assert_eq!(calls(&fragments).map(|calls| calls.len()), Some(2));
    }

    #[test]
    fn calls_without_numbers_begin_with_their_names() {
        let begin = |id: &str| json!({"id": id, "function": {"name": "x", "arguments": "{"}});
        let end = json!({"function": {"arguments": "}"}});
        let expected = vec![ToolCall::new("a", "x", "{}"), ToolCall::new("b", "x", "{}")];
        assert_eq!(calls(&[begin("a"), end.clone(), begin("b"), end]), Some(expected));
    }

    #[test]
    fn missing_ids_are_filled_in_and_missing_names_are_not() {
        assert_eq!(calls(&[fragment(0, "", "x", "{}")]), Some(vec![ToolCall::new("call_0", "x", "{}")]));
        assert_eq!(calls(&[fragment(0, "a", "", "{}")]), None);
        let object = json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": {"n": 1}}});
        assert_eq!(calls(&[object]), Some(vec![ToolCall::new("a", "x", "{\"n\":1}")]));
    }
}
