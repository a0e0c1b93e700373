//! Message lists that every provider accepts, valid by construction.
//!
//! Whatever is pushed, what comes out obeys one grammar: an assistant message that calls tools is followed at once by
//! exactly one tool message per call; call ids are unique; a user message comes before the first call; a request ends
//! on a user or tool message. Nothing a tape can hold (a crash between call and result, a message that arrived in the
//! middle of a step, a result whose call was cut away) breaks it.

use std::collections::HashMap;

use capstan_protocol::{ChatMessage, Content, MessageRole, ToolCall};

/// The result of a call that never got one.
pub const INTERRUPTED_RESULT: &str = "[No result: the call was interrupted and its outcome is unknown.]";
/// The user message put before a call that has none before it.
pub const CONTINUED_NOTICE: &str = "[The conversation continues from here.]";
/// The user message that ends a request which would otherwise end on the assistant.
pub const CONTINUE_PROMPT: &str = "Continue.";

/// Builds a message list that obeys the grammar.
#[derive(Debug, Default)]
pub struct ConversationBuilder {
    messages: Vec<ChatMessage>,
    step: Option<ToolCallStep>,
    /// Messages that arrived while a step was open: they follow its results.
    deferred: Vec<ChatMessage>,
    call_ids: UniqueCallIds,
    has_user_message: bool,
}

/// Ids of calls, each given once: every one in use, and the number to begin with where it is used again. Somebody may use
/// one id for ever.
#[derive(Debug, Default)]
pub struct UniqueCallIds(HashMap<String, u64>);

impl UniqueCallIds {
    /// The id of a call that was written with this one: the same, unless it is empty or was given before.
    pub fn assign(&mut self, written: &str) -> String {
        let base = if written.is_empty() { "call" } else { written };
        let Some(mut number) = self.0.get(base).copied() else {
            self.0.insert(base.to_owned(), 2);
            return base.to_owned();
        };
        let mut id = format!("{base}_{number}");
        while self.0.contains_key(&id) {
            number += 1;
            id = format!("{base}_{number}");
        }
        self.0.insert(base.to_owned(), number + 1);
        self.0.insert(id.clone(), 2);
        id
    }
}

/// An assistant message whose calls are being answered.
#[derive(Debug)]
struct ToolCallStep {
    message: ChatMessage,
    /// The ids as they were written, by position; the message has unique ones.
    recorded_ids: Vec<String>,
    results: Vec<Option<Content>>,
}

/// How a result says which call it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultTarget<'a> {
    /// By the id of the call.
    CallId(&'a str),
    /// The first call of the step that has no result yet, as on tapes without ids.
    NextOpenCall,
}

impl ConversationBuilder {
    /// An empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message. Messages with calls or of a tool take part in the pairing; empty ones are left out.
    pub fn push(&mut self, mut message: ChatMessage) {
        if message.role != MessageRole::Assistant {
            // A tape of another system may say otherwise, but only the assistant calls tools.
            message.tool_calls.clear();
        }
        match message.role {
            MessageRole::Assistant if !message.tool_calls.is_empty() => self.push_calls(message),
            MessageRole::Tool => {
                let answers = message.tool_call_id.as_deref().map_or(ResultTarget::NextOpenCall, ResultTarget::CallId);
                self.push_result(answers, message.content.clone());
            }
            MessageRole::System | MessageRole::User | MessageRole::Assistant if message.content.is_empty() => {}
            MessageRole::System | MessageRole::User | MessageRole::Assistant => {
                if self.step.as_ref().is_some_and(ToolCallStep::is_open) {
                    self.deferred.push(message);
                } else {
                    self.close_step();
                    self.emit(message);
                }
            }
        }
    }

    fn push_calls(&mut self, mut message: ChatMessage) {
        self.close_step();
        let mut written_ids = Vec::new();
        message.tool_calls.retain(|call| !call.function.name.is_empty());
        for call in &mut message.tool_calls {
            written_ids.push(call.id.clone());
            call.id = self.call_ids.assign(&call.id);
        }
        if written_ids.is_empty() {
            message.tool_calls.clear();
            return self.push(message);
        }
        let answers = vec![None; written_ids.len()];
        self.step = Some(ToolCallStep { message, recorded_ids: written_ids, results: answers });
    }

    /// Adds a result to the step before it. One that answers no call of that step is left out.
    pub fn push_result(&mut self, answers: ResultTarget<'_>, content: Content) {
        let Some(step) = &mut self.step else { return };
        let unanswered = |position: &usize| step.results[*position].is_none();
        let mut positions = 0..step.results.len();
        let position = match answers {
            ResultTarget::NextOpenCall => positions.find(unanswered),
            ResultTarget::CallId(id) => {
                positions.filter(unanswered).find(|position| step.recorded_ids[*position] == id)
            }
        };
        if let Some(position) = position {
            step.results[position] = Some(content);
        }
    }

    fn close_step(&mut self) {
        if let Some(step) = self.step.take() {
            if !self.has_user_message {
                self.emit(ChatMessage::user(CONTINUED_NOTICE));
            }
            let calls: Vec<ToolCall> = step.message.tool_calls.clone();
            self.messages.push(step.message);
            for (call, answer) in calls.into_iter().zip(step.results) {
                let content = answer.unwrap_or_else(|| INTERRUPTED_RESULT.into());
                self.messages.push(ChatMessage::tool_result(call.id, call.function.name, content));
            }
        }
        for message in std::mem::take(&mut self.deferred) {
            self.emit(message);
        }
    }

    fn emit(&mut self, message: ChatMessage) {
        self.has_user_message |= message.role == MessageRole::User;
        self.messages.push(message);
    }

    /// The messages, every call answered.
    pub fn finish(mut self) -> Vec<ChatMessage> {
        self.close_step();
        self.messages
    }
}

impl ToolCallStep {
    fn is_open(&self) -> bool {
        self.results.iter().any(Option::is_none)
    }
}

impl FromIterator<ChatMessage> for ConversationBuilder {
    fn from_iter<I: IntoIterator<Item = ChatMessage>>(messages: I) -> Self {
        let mut conversation = Self::new();
        messages.into_iter().for_each(|message| conversation.push(message));
        conversation
    }
}

/// Makes any message list one that can be sent: paired, and ending on a user or tool message.
pub fn normalize_request(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut messages = messages.into_iter().collect::<ConversationBuilder>().finish();
    let ends_well = messages.last().is_some_and(|last| matches!(last.role, MessageRole::User | MessageRole::Tool));
    if !ends_well {
        messages.push(ChatMessage::user(CONTINUE_PROMPT));
    }
    messages
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
