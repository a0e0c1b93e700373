//! Tools, as they are written on a wire.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::ToolSpec;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::Wire;

/// The tools of the last request, as they were written: they are many, and in most requests the same.
#[derive(Debug, Default)]
pub(crate) struct WrittenTools {
    last: Mutex<Last>,
    sent: Mutex<Option<Sent>>,
}

#[derive(Debug, Default)]
struct Last {
    tools: Arc<[ToolSpec]>,
    written: Arc<[Value]>,
}

/// The tools of a body, and their text.
#[derive(Debug)]
struct Sent {
    tools: Arc<[Value]>,
    text: Arc<RawValue>,
}

impl WrittenTools {
    /// The tools of a request on this wire, which must be the same each time.
    pub(crate) fn on(&self, wire: Wire, tools: &Arc<[ToolSpec]>) -> Arc<[Value]> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.tools, tools) && last.tools != *tools {
            *last = Last { tools: Arc::clone(tools), written: wire.tools(tools) };
        }
        Arc::clone(&last.written)
    }

    /// The text of the tools of a body, which may have been changed since they were [written](Self::on).
    pub(crate) fn text(&self, tools: &Arc<[Value]>) -> serde_json::Result<Arc<RawValue>> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |sent: &&Sent| Arc::ptr_eq(&sent.tools, tools) || sent.tools == *tools;
        if let Some(sent) = sent.as_ref().filter(same) {
            return Ok(Arc::clone(&sent.text));
        }
        let text: Arc<RawValue> = to_raw_value(tools)?.into();
        *sent = Some(Sent { tools: Arc::clone(tools), text: Arc::clone(&text) });
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::WrittenTools;

    #[test]
    fn a08_the_text_is_always_that_of_the_tools_at_hand() {
        let written = WrittenTools::default();
        let sets: [Arc<[Value]>; 3] =
            [[json!({"name": "a", "x": [1, "\n"]})].into(), [json!({"name": "b"})].into(), [].into()];
        for tools in sets.iter().chain(sets.iter().rev()) {
            for same in [Arc::clone(tools), tools.iter().cloned().collect()] {
                assert_eq!(written.text(&same).unwrap().get(), json!(**tools).to_string());
            }
        }
    }
}
