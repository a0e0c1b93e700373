//! Reading what Ollama answers.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{Map, ToolCall};
use serde_json::{Value, json};

use super::THINKING;
use crate::failure::Fault;
use crate::frames::Frame;
use crate::wire::figures::Figures;
use crate::wire::opaque::Speaker;
use crate::wire::reader::{self, Ending, NO_REASON, Progress, Reader, some};

/// What has come of one answer.
pub(in crate::wire) struct Answer {
    speaker: Speaker,
    calls: Vec<ToolCall>,
    thinking: String,
    figures: Figures,
    ending: Option<Ending>,
}

impl Answer {
    pub(in crate::wire) fn new(speaker: Speaker) -> Self {
        let (calls, figures) = (Vec::new(), Figures::default());
        Self { speaker, calls, thinking: String::new(), figures, ending: None }
    }

    fn read_call(&mut self, made: &Value) -> Result<(), Fault> {
        let function = &made["function"];
        let name = some(&function["name"]).ok_or(Fault::Senseless("it calls a tool without a name"))?;
        let id = some(&made["id"]).map_or_else(|| format!("call_{}", self.calls.len()), str::to_owned);
        let arguments = match &function["arguments"] {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            object => object.to_string(),
        };
        self.calls.push(ToolCall::new(id, name, arguments));
        Ok(())
    }
}

impl Reader for Answer {
    fn read(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<Progress, Fault> {
        let line = reader::json(&frame.data)?;
        if let Some(error) = line.get("error") {
            return Err(Fault::Reported { status: None, body: json!({ "message": error }) });
        }
        let message = &line["message"];
        if let Some(thought) = some(&message["thinking"]) {
            self.thinking.push_str(thought);
            events.push(ModelEvent::Reasoning(thought.to_owned()));
        }
        events.extend(some(&message["content"]).map(|text| ModelEvent::Text(text.to_owned())));
        message["tool_calls"].as_array().into_iter().flatten().try_for_each(|made| self.read_call(made))?;
        if line["done"] != true {
            return Ok(Progress::More);
        }
        let (prompt, completion) = (line["prompt_eval_count"].as_u64(), line["eval_count"].as_u64());
        self.figures = Figures { prompt, completion, ..Figures::default() };
        // Older servers give no reason, and are done all the same.
        self.ending = Some(if line["done_reason"] == "length" { Ending::Truncated } else { Ending::Done });
        Ok(Progress::Complete)
    }

    fn is_calling(&self) -> bool {
        !self.calls.is_empty()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, Fault> {
        let ending = self.ending.ok_or(NO_REASON)?;
        let mut calls = std::mem::take(&mut self.calls);
        if let Some(first) = calls.first_mut().filter(|_| !self.thinking.is_empty()) {
            let thinking = Value::from(std::mem::take(&mut self.thinking));
            self.speaker.on_call(first, Map::from_iter([(THINKING.to_owned(), thinking)]));
        }
        let mut events: Vec<ModelEvent> = calls.into_iter().map(ModelEvent::ToolCall).collect();
        events.extend(self.figures.usage().map(ModelEvent::Usage));
        ending.close(events)
    }
}
