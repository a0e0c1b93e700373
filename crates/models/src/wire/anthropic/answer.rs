//! Reading what Anthropic answers.

use std::collections::BTreeMap;

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::ToolCall;
use serde_json::{Value, json};

use super::THINKING;
use crate::failure::Fault;
use crate::frames::Frame;
use crate::wire::figures::{Figures, sum};
use crate::wire::opaque::{Given, Speaker};
use crate::wire::reader::{self, Ending, NO_REASON, Progress, Reader, some};

/// What has come of one answer.
pub(in crate::wire) struct Answer {
    speaker: Speaker,
    open: BTreeMap<u64, Block>,
    given: Given,
    usage: serde_json::Map<String, Value>,
    ending: Option<Ending>,
}

/// A block that has begun.
enum Block {
    Text,
    Thought {
        text: String,
        signature: String,
    },
    Call {
        id: String,
        name: String,
        begun_with: Value,
        arguments: String,
    },
    /// Kept as it is.
    Opaque(Value),
    /// A kind not known here.
    Other,
}

impl Answer {
    pub(in crate::wire) fn new(speaker: Speaker) -> Self {
        let (open, given, usage) = (BTreeMap::new(), Given::default(), serde_json::Map::new());
        Self { speaker, open, given, usage, ending: None }
    }

    fn begin(&mut self, index: u64, block: &Value, events: &mut Vec<ModelEvent>) {
        let words = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let begun = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                self.say(&words("text"), events);
                Block::Text
            }
            "thinking" => Block::Thought { text: words("thinking"), signature: words("signature") },
            "tool_use" => {
                self.given.begin_call();
                Block::Call {
                    id: words("id"),
                    name: words("name"),
                    begun_with: block["input"].clone(),
                    arguments: String::new(),
                }
            }
            "redacted_thinking" => Block::Opaque(block.clone()),
            _ => Block::Other,
        };
        self.open.insert(index, begun);
    }

    fn say(&mut self, words: &str, events: &mut Vec<ModelEvent>) {
        if !words.is_empty() {
            self.given.text();
            events.push(ModelEvent::Text(words.to_owned()));
        }
    }

    fn go_on(&mut self, index: u64, delta: &Value, events: &mut Vec<ModelEvent>) {
        if let Some(words) = some(&delta["text"]) {
            return self.say(words, events);
        }
        match self.open.get_mut(&index) {
            Some(Block::Thought { text, signature }) => {
                if let Some(words) = some(&delta["thinking"]) {
                    text.push_str(words);
                    events.push(ModelEvent::Reasoning(words.to_owned()));
                }
                signature.push_str(delta["signature"].as_str().unwrap_or_default());
            }
            Some(Block::Call { arguments, .. }) => {
                arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            Some(Block::Text | Block::Opaque(_) | Block::Other) | None => {}
        }
    }

    fn end(&mut self, index: u64) -> Result<(), Fault> {
        match self.open.remove(&index) {
            Some(Block::Thought { text, signature }) => {
                self.given.item(json!({"type": "thinking", "thinking": text, "signature": signature}));
            }
            Some(Block::Opaque(block)) => self.given.item(block),
            Some(Block::Call { id, name, begun_with, arguments }) => {
                if id.is_empty() || name.is_empty() {
                    return Err(Fault::Senseless("it calls a tool without an id or a name"));
                }
                // An empty object stands for arguments that are to come.
                let begun_with = begun_with.as_object().filter(|given| arguments.is_empty() && !given.is_empty());
                let whole = begun_with.map_or(arguments, |given| json!(given).to_string());
                self.given.call(ToolCall::new(id, name, whole));
            }
            Some(Block::Text | Block::Other) | None => {}
        }
        Ok(())
    }

    fn figures(&self) -> Figures {
        let figure = |name: &str| self.usage.get(name).and_then(Value::as_u64);
        let (cached, written) = (figure("cache_read_input_tokens"), figure("cache_creation_input_tokens"));
        Figures {
            prompt: sum(&[figure("input_tokens"), cached, written]),
            completion: figure("output_tokens"),
            cached,
            cache_written: written,
            reasoning: None,
        }
    }

    fn used(&mut self, usage: &Value) {
        let known = usage.as_object().into_iter().flatten().filter(|(_, figure)| !figure.is_null());
        self.usage.extend(known.map(|(name, figure)| (name.clone(), figure.clone())));
    }
}

impl Reader for Answer {
    fn read(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<Progress, Fault> {
        let said = reader::json(&frame.data)?;
        let index = said["index"].as_u64().unwrap_or_default();
        match said["type"].as_str().unwrap_or_default() {
            "ping" => return Ok(Progress::Idle),
            "message_start" => self.used(&said["message"]["usage"]),
            "content_block_start" => self.begin(index, &said["content_block"], events),
            "content_block_delta" => self.go_on(index, &said["delta"], events),
            "content_block_stop" => self.end(index)?,
            "message_delta" => {
                self.used(&said["usage"]);
                self.ending = match said["delta"]["stop_reason"].as_str() {
                    None => self.ending,
                    Some("max_tokens" | "model_context_window_exceeded") => Some(Ending::Truncated),
                    Some("refusal") => Some(Ending::Filtered),
                    Some(_) => Some(Ending::Done),
                };
            }
            "message_stop" => return Ok(Progress::Complete),
            "error" => return Err(Fault::Reported { status: status_of(&said["error"]), body: said["error"].clone() }),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn is_calling(&self) -> bool {
        self.given.is_calling()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, Fault> {
        let ending = self.ending.ok_or(NO_REASON)?;
        // A block that was cut short by the limit has no end.
        let open: Vec<u64> = self.open.keys().copied().collect();
        open.into_iter().try_for_each(|index| self.end(index))?;
        self.given.fill(ending);
        let mut events = self.given.events(&self.speaker, THINKING);
        events.extend(self.figures().usage().map(ModelEvent::Usage));
        ending.close(events)
    }
}

/// The status an error would have had before the stream began.
fn status_of(error: &Value) -> Option<u16> {
    Some(match error["type"].as_str()? {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "overloaded_error" => 529,
        _ => 500,
    })
}
