//! Reading what Gemini answers.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{Map, ToolCall};
use serde_json::{Value, json};

use super::{ID, SIGNATURE};
use crate::failure::Fault;
use crate::frames::Frame;
use crate::wire::figures::{Figures, sum};
use crate::wire::opaque::Speaker;
use crate::wire::reader::{self, Ending, NO_REASON, Progress, Reader, reported, some};

/// What has come of one answer.
pub(in crate::wire) struct Answer {
    speaker: Speaker,
    calls: Vec<ToolCall>,
    /// The signature of the text, if it has one.
    signature: Option<Value>,
    figures: Figures,
    ending: Option<Ending>,
}

impl Answer {
    pub(in crate::wire) fn new(speaker: Speaker) -> Self {
        let (calls, figures) = (Vec::new(), Figures::default());
        Self { speaker, calls, signature: None, figures, ending: None }
    }

    fn read_part(&mut self, part: &Value, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let signature = part.get("thoughtSignature").cloned();
        if let Some(made) = part.get("functionCall") {
            return self.read_call(made, signature);
        }
        match (some(&part["text"]), part["thought"] == true) {
            (Some(text), true) => events.push(ModelEvent::Reasoning(text.to_owned())),
            (Some(text), false) => events.push(ModelEvent::Text(text.to_owned())),
            (None, _) => {}
        }
        self.signature = signature.or(self.signature.take());
        Ok(())
    }

    fn read_call(&mut self, made: &Value, signature: Option<Value>) -> Result<(), Fault> {
        let name = some(&made["name"]).ok_or(Fault::Senseless("it calls a tool without a name"))?;
        let id = some(&made["id"]);
        let arguments = match &made["args"] {
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        };
        let own_id = id.map_or_else(|| format!("call_{}", self.calls.len()), str::to_owned);
        let mut call = ToolCall::new(own_id, name, arguments);
        let mut data = Map::new();
        data.extend(id.map(|_| (ID.to_owned(), json!(true))));
        data.extend(signature.map(|signature| (SIGNATURE.to_owned(), signature)));
        self.speaker.on_call(&mut call, data);
        self.calls.push(call);
        Ok(())
    }

    fn read_usage(&mut self, usage: &Value) {
        let figure = |name: &str| usage[name].as_u64();
        if usage.is_object() {
            let reasoning = figure("thoughtsTokenCount");
            self.figures = Figures {
                prompt: sum(&[figure("promptTokenCount"), figure("toolUsePromptTokenCount")]),
                completion: sum(&[figure("candidatesTokenCount"), reasoning]),
                cached: figure("cachedContentTokenCount"),
                cache_written: None,
                reasoning,
            };
        }
    }
}

impl Reader for Answer {
    fn read(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<Progress, Fault> {
        let chunk = reader::json(&frame.data)?;
        if chunk.get("error").is_some() {
            return Err(reported(&chunk["error"]));
        }
        if some(&chunk["promptFeedback"]["blockReason"]).is_some() {
            return Err(Fault::Filtered);
        }
        self.read_usage(&chunk["usageMetadata"]);
        let candidate = &chunk["candidates"][0];
        let parts = candidate["content"]["parts"].as_array().into_iter().flatten();
        parts.into_iter().try_for_each(|part| self.read_part(part, events))?;
        self.ending = match candidate["finishReason"].as_str() {
            None | Some("" | "FINISH_REASON_UNSPECIFIED") => self.ending,
            Some("MAX_TOKENS") => Some(Ending::Truncated),
            Some("STOP") => Some(Ending::Done),
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS") => {
                return Err(Fault::Cut("the model called a tool in a way that makes no sense"));
            }
            Some("OTHER") => return Err(Fault::Cut("it gave no reason for its end")),
            // Every other reason is a filter: safety, recitation, a list of words and more.
            Some(_) => Some(Ending::Filtered),
        };
        Ok(Progress::More)
    }

    fn is_calling(&self) -> bool {
        !self.calls.is_empty()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, Fault> {
        let ending = self.ending.ok_or(NO_REASON)?;
        let mut calls = std::mem::take(&mut self.calls);
        let signature = self.signature.take().map(|signature| Map::from_iter([(SIGNATURE.to_owned(), signature)]));
        let mut beside = None;
        match (signature, calls.first_mut()) {
            (Some(data), Some(first)) if self.speaker.in_call(first, SIGNATURE).is_none() => {
                self.speaker.on_call(first, data);
            }
            (Some(data), None) => beside = Some(self.speaker.beside_text(data)),
            _ => {}
        }
        let mut events: Vec<ModelEvent> = calls.into_iter().map(ModelEvent::ToolCall).chain(beside).collect();
        events.extend(self.figures.usage().map(ModelEvent::Usage));
        ending.close(events)
    }
}
