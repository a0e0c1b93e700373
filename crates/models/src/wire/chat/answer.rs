//! Reading what an `OpenAI` chat server answers.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{Map, ToolCall};
use serde_json::Value;

use super::calls::Calls;
use super::{DETAILS, WORDS};
use crate::failure::Fault;
use crate::frames::Frame;
use crate::wire::figures::Figures;
use crate::wire::fit::{LONGEST_ID, OWN_ID};
use crate::wire::opaque::Speaker;
use crate::wire::reader::{Ending, NO_REASON, Progress, Reader, json, reported, some};

/// What has come of one answer.
pub(in crate::wire) struct Answer {
    speaker: Speaker,
    calls: Calls,
    figures: Figures,
    cost: Option<Value>,
    ending: Option<Ending>,
    /// Reasoning as text, with the name the server gives it.
    reasoning: Option<(&'static str, String)>,
    /// Reasoning as a list of things that only the server understands.
    details: Vec<Value>,
}

impl Answer {
    pub(in crate::wire) fn new(speaker: Speaker) -> Self {
        Self {
            speaker,
            calls: Calls::default(),
            figures: Figures::default(),
            cost: None,
            ending: None,
            reasoning: None,
            details: Vec::new(),
        }
    }

    fn read_choice(&mut self, choice: &Value, events: &mut Vec<ModelEvent>) {
        // A server that does not stream sends the whole message at once.
        let delta = choice.get("delta").or(choice.get("message")).unwrap_or(&Value::Null);
        for name in WORDS {
            if let Some(text) = some(&delta[name]) {
                self.reasoning.get_or_insert((name, String::new())).1.push_str(text);
                events.push(ModelEvent::Reasoning(text.to_owned()));
                break;
            }
        }
        self.details.extend(delta[DETAILS].as_array().into_iter().flatten().cloned());
        for text in [&delta["content"], &delta["refusal"]].into_iter().filter_map(some) {
            events.push(ModelEvent::Text(text.to_owned()));
        }
        delta["tool_calls"].as_array().into_iter().flatten().for_each(|fragment| self.calls.push(fragment));
        self.ending = match choice["finish_reason"].as_str() {
            None | Some("") => self.ending,
            Some("length") => Some(Ending::Truncated),
            Some("content_filter") => Some(Ending::Filtered),
            Some(_) => Some(Ending::Done),
        };
    }

    fn read_usage(&mut self, usage: &Value) {
        if usage.is_object() {
            self.figures = Figures {
                prompt: usage["prompt_tokens"].as_u64(),
                completion: usage["completion_tokens"].as_u64(),
                cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
                cache_written: usage["prompt_tokens_details"]["cache_write_tokens"].as_u64(),
                reasoning: usage["completion_tokens_details"]["reasoning_tokens"].as_u64(),
            };
            self.cost = usage.get("cost").filter(|cost| cost.is_number()).cloned();
        }
    }

    /// What the server wants back with the calls.
    fn given_back(&mut self) -> Map {
        let details = std::mem::take(&mut self.details);
        if !details.is_empty() {
            return Map::from_iter([(DETAILS.to_owned(), Value::Array(details))]);
        }
        self.reasoning.take().map(|(name, text)| (name.to_owned(), Value::from(text))).into_iter().collect()
    }
}

impl Reader for Answer {
    fn read(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<Progress, Fault> {
        if frame.data.trim() == "[DONE]" {
            return Ok(Progress::Complete);
        }
        let chunk = json(&frame.data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(reported(&chunk["error"]));
        }
        self.read_usage(&chunk["usage"]);
        // Only one choice is asked for.
        self.read_choice(&chunk["choices"][0], events);
        Ok(Progress::More)
    }

    fn is_calling(&self) -> bool {
        !self.calls.is_empty()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, Fault> {
        let ending = self.ending.ok_or(NO_REASON)?;
        let mut events = Vec::new();
        if !self.calls.is_empty() {
            let back = self.given_back();
            let calls = std::mem::take(&mut self.calls).finish();
            let mut calls: Vec<ToolCall> = calls.ok_or(Fault::Senseless("it calls a tool without a name"))?;
            ending.fill(&mut calls);
            // Some servers put more than a name into an id, and want it back.
            for long in calls.iter_mut().filter(|call| call.id.chars().count() > LONGEST_ID) {
                self.speaker.on_call(long, Map::from_iter([(OWN_ID.to_owned(), Value::Bool(true))]));
            }
            if let Some(first) = calls.first_mut() {
                self.speaker.on_call(first, back);
            }
            events.extend(calls.into_iter().map(ModelEvent::ToolCall));
        }
        if let Some(mut usage) = self.figures.usage() {
            usage.extra.extend(self.cost.take().map(|cost| ("cost".to_owned(), cost)));
            events.push(ModelEvent::Usage(usage));
        }
        ending.close(events)
    }
}
