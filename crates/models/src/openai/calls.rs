//! Putting tool calls together from their chunks.

use capstan_protocol::ToolCall;
use genai::chat::ToolCall as Chunk;
use serde_json::Value;

/// The calls of one answer, in the order in which they began.
///
/// A chunk of genai holds all arguments of its call so far, as text. At the end it parses them, which loses the text
/// the model wrote, so the chunks are what counts; the ids of the end tell which of them stood.
#[derive(Debug, Default)]
pub(super) struct Calls {
    seen: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Takes a chunk in.
    pub(super) fn push(&mut self, chunk: Chunk) {
        let arguments = match chunk.fn_arguments {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let goes_on = |seen: &&mut Seen| seen.id == chunk.call_id && arguments.starts_with(&seen.arguments);
        match self.seen.iter_mut().rev().find(goes_on) {
            Some(seen) => (seen.name, seen.arguments) = (chunk.fn_name, arguments),
            None => self.seen.push(Seen { id: chunk.call_id, name: chunk.fn_name, arguments }),
        }
    }

    /// The calls, given the ids that stood at the end; `None` if one has no name.
    pub(super) fn finish(self, ids: &[String]) -> Option<Vec<ToolCall>> {
        let stood = self.seen.into_iter().filter(|seen| ids.contains(&seen.id));
        stood.enumerate().map(|(index, seen)| whole(index, seen)).collect()
    }
}

fn whole(index: usize, seen: Seen) -> Option<ToolCall> {
    // Some servers leave the id empty, or send no arguments at all for a tool that takes none.
    let id = if seen.id.is_empty() { format!("call_{index}") } else { seen.id };
    let arguments = if seen.arguments.trim().is_empty() { "{}".to_owned() } else { seen.arguments };
    (!seen.name.is_empty()).then(|| ToolCall::new(id, seen.name, arguments))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::ToolCall;
    use genai::chat::ToolCall as Chunk;
    use serde_json::json;

    use super::Calls;

    fn calls(chunks: &[(&str, &str, &str)], ids: &[&str]) -> Option<Vec<ToolCall>> {
        let mut calls = Calls::default();
        for (id, name, arguments) in chunks {
            calls.push(Chunk {
                call_id: (*id).to_owned(),
                fn_name: (*name).to_owned(),
                fn_arguments: json!(arguments),
                thought_signatures: None,
            });
        }
        calls.finish(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_chunk_of_a_call_holds_its_arguments_as_the_model_wrote_them() {
        let chunks = [("a", "bash", ""), ("a", "bash", "{\"n\" :"), ("a", "bash", "{\"n\" : 1.0}")];
        assert_eq!(calls(&chunks, &["a"]), Some(vec![ToolCall::new("a", "bash", "{\"n\" : 1.0}")]));
    }

    #[test]
    fn calls_keep_their_order_also_when_their_chunks_mix() {
        let chunks = [("a", "x", "{"), ("b", "y", "{"), ("a", "x", "{}"), ("b", "y", "{ }")];
        let expected = vec![ToolCall::new("a", "x", "{}"), ToolCall::new("b", "y", "{ }")];
        assert_eq!(calls(&chunks, &["a", "b"]), Some(expected));
    }

    #[test]
    fn two_calls_with_one_id_stay_two() {
        let chunks = [("a", "x", "{\"n\":1}"), ("a", "x", ""), ("a", "x", "{\"n\":2}")];
        assert_eq!(calls(&chunks, &["a", "a"]).map(|calls| calls.len()), Some(2));
    }

    #[test]
    fn an_id_that_changed_on_the_way_counts_once() {
        let chunks = [("a", "x", "{"), ("call_0", "x", "{}")];
        assert_eq!(calls(&chunks, &["call_0"]), Some(vec![ToolCall::new("call_0", "x", "{}")]));
    }

    #[test]
    fn missing_ids_and_arguments_are_filled_in_and_missing_names_are_not() {
        assert_eq!(calls(&[("", "x", "")], &[""]), Some(vec![ToolCall::new("call_0", "x", "{}")]));
        assert_eq!(calls(&[("a", "", "{}")], &["a"]), None);
    }
}
