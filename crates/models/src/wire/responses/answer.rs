//! Reading what `OpenAI` Responses answers.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{Map, ToolCall};
use serde_json::Value;

use super::{ID, REASONING};
use crate::failure::Fault;
use crate::frames::Frame;
use crate::wire::figures::Figures;
use crate::wire::opaque::{Given, Speaker};
use crate::wire::reader::{self, Ending, NO_REASON, Progress, Reader, some};

/// What has come of one answer.
pub(in crate::wire) struct Answer {
    speaker: Speaker,
    given: Given,
    figures: Figures,
    ending: Option<Ending>,
}

impl Answer {
    pub(in crate::wire) fn new(speaker: Speaker) -> Self {
        let (given, figures) = (Given::default(), Figures::default());
        Self { speaker, given, figures, ending: None }
    }

    /// An item is whole.
    fn read_item(&mut self, item: &Value) -> Result<(), Fault> {
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.given.text(),
            // Without its content in encrypted form it means nothing to a provider that stored nothing.
            "reasoning" if some(&item["encrypted_content"]).is_some() => {
                let mut item = item.clone();
                item.as_object_mut().into_iter().for_each(|item| {
                    item.remove("status");
                });
                self.given.item(item);
            }
            "function_call" => {
                let nameless = Fault::Senseless("it calls a tool without an id or a name");
                let (Some(id), Some(name)) = (some(&item["call_id"]), some(&item["name"])) else {
                    return Err(nameless);
                };
                let mut call = ToolCall::new(id, name, some(&item["arguments"]).unwrap_or_default());
                let data = item.get("id").cloned().map(|id| (ID.to_owned(), id)).into_iter().collect::<Map>();
                self.speaker.on_call(&mut call, data);
                self.given.call(call);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, response: &Value, ending: Ending) -> Progress {
        let usage = &response["usage"];
        if usage.is_object() {
            self.figures = Figures {
                prompt: usage["input_tokens"].as_u64(),
                completion: usage["output_tokens"].as_u64(),
                cached: usage["input_tokens_details"]["cached_tokens"].as_u64(),
                cache_written: None,
                reasoning: usage["output_tokens_details"]["reasoning_tokens"].as_u64(),
            };
        }
        self.ending = Some(ending);
        Progress::Complete
    }
}

impl Reader for Answer {
    fn read(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<Progress, Fault> {
        if frame.data.trim() == "[DONE]" {
            return Ok(Progress::Complete);
        }
        let said = reader::json(&frame.data)?;
        let delta = some(&said["delta"]).map(str::to_owned);
        match said["type"].as_str().unwrap_or_default() {
            "keepalive" => return Ok(Progress::Idle),
            "response.output_text.delta" | "response.refusal.delta" => events.extend(delta.map(ModelEvent::Text)),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                events.extend(delta.map(ModelEvent::Reasoning));
            }
            "response.output_item.added" if said["item"]["type"] == "function_call" => self.given.begin_call(),
            "response.output_item.done" => self.read_item(&said["item"])?,
            "response.completed" => return Ok(self.end(&said["response"], Ending::Done)),
            "response.incomplete" => {
                let filtered = said["response"]["incomplete_details"]["reason"] == "content_filter";
                let ending = if filtered { Ending::Filtered } else { Ending::Truncated };
                return Ok(self.end(&said["response"], ending));
            }
            "response.failed" => return Err(reported(&said["response"]["error"])),
            "error" => return Err(reported(said.get("error").unwrap_or(&said))),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn is_calling(&self) -> bool {
        self.given.is_calling()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, Fault> {
        let ending = self.ending.ok_or(NO_REASON)?;
        self.given.fill(ending);
        let mut events = self.given.events(&self.speaker, REASONING);
        events.extend(self.figures.usage().map(ModelEvent::Usage));
        ending.close(events)
    }
}

/// An error in mid-stream; it is named, not numbered.
fn reported(error: &Value) -> Fault {
    let status = match error["code"].as_str().unwrap_or_default() {
        "rate_limit_exceeded" => Some(429),
        "server_error" => Some(500),
        _ => None,
    };
    Fault::Reported { status, body: error.clone() }
}
