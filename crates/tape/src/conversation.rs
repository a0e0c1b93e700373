//! Construction of message lists that every provider accepts.
//!
//! # Grammar
//!
//! - An assistant message that calls tools is followed immediately by exactly one tool message per call.
//! - Call ids are unique.
//! - A user message precedes the first call.
//! - A request ends with a user or tool message.
//!
//! The builder enforces the grammar for any input, including tapes with a crash between call and result, a message that
//! arrived in the middle of a step, or a result whose call is outside of the window.

use std::collections::HashMap;

use capstan_protocol::{ChatMessage, Content, MessageRole, ToolCall};

/// Result text for a call without a recorded result.
pub const INTERRUPTED_RESULT: &str = "[No result: the call was interrupted and its outcome is unknown.]";
/// User message that is inserted if no user message precedes the first call.
pub const CONTINUED_NOTICE: &str = "[The conversation continues from here.]";
/// User message that is appended to a request that would end with an assistant message.
pub const CONTINUE_PROMPT: &str = "Continue.";

/// Builder of a message list that satisfies the grammar.
#[derive(Debug, Default)]
pub struct ConversationBuilder {
    messages: Vec<ChatMessage>,
    step: Option<ToolCallStep>,
    /// Messages that arrived while a step was open; they are emitted after its results.
    deferred: Vec<ChatMessage>,
    call_ids: UniqueCallIds,
    has_user_message: bool,
}

/// Allocator of unique call ids: maps every id in use to the suffix to try first when the id is repeated, because a
/// provider may use the same id for every call.
#[derive(Debug, Default)]
pub struct UniqueCallIds(HashMap<String, u64>);

impl UniqueCallIds {
    /// Unique id for a call that was recorded with this id: the same, unless it is empty or already in use.
    pub fn assign(&mut self, recorded: &str) -> String {
        let base = if recorded.is_empty() { "call" } else { recorded };
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

/// Assistant message with calls, and the results so far.
#[derive(Debug)]
struct ToolCallStep {
    message: ChatMessage,
    /// Recorded ids of the calls, by position; the message has unique ones.
    recorded_ids: Vec<String>,
    results: Vec<Option<Content>>,
}

/// Call that a result belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultTarget<'a> {
    /// Call with this id.
    CallId(&'a str),
    /// First call of the step without a result, for tapes without call ids.
    NextOpenCall,
}

impl ConversationBuilder {
    /// Empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message. Tool calls and tool results are paired; empty messages are omitted.
    pub fn push(&mut self, mut message: ChatMessage) {
        if message.role != MessageRole::Assistant {
            // A tape of another system may have calls in other messages, but only the assistant calls tools.
            message.tool_calls.clear();
        }
        match message.role {
            MessageRole::Assistant if !message.tool_calls.is_empty() => self.push_calls(message),
            MessageRole::Tool => {
                let target = message.tool_call_id.as_deref().map_or(ResultTarget::NextOpenCall, ResultTarget::CallId);
                self.push_result(target, message.content.clone());
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
        let mut recorded_ids = Vec::new();
        message.tool_calls.retain(|call| !call.function.name.is_empty());
        for call in &mut message.tool_calls {
            recorded_ids.push(call.id.clone());
            call.id = self.call_ids.assign(&call.id);
        }
        if recorded_ids.is_empty() {
            message.tool_calls.clear();
            return self.push(message);
        }
        let results = vec![None; recorded_ids.len()];
        self.step = Some(ToolCallStep { message, recorded_ids, results });
    }

    /// Adds a result to the current step. A result that matches no open call of the step is omitted.
    pub fn push_result(&mut self, target: ResultTarget<'_>, content: Content) {
        let Some(step) = &mut self.step else { return };
        let is_open = |position: &usize| step.results[*position].is_none();
        let mut positions = 0..step.results.len();
        let position = match target {
            ResultTarget::NextOpenCall => positions.find(is_open),
            ResultTarget::CallId(id) => positions.filter(is_open).find(|position| step.recorded_ids[*position] == id),
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
            for (call, result) in calls.into_iter().zip(step.results) {
                let content = result.unwrap_or_else(|| INTERRUPTED_RESULT.into());
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

    /// Messages, with a result for every call.
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

/// Converts any message list into a valid request: calls paired with results, and a user or tool message at the end.
pub fn normalize_request(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut messages = messages.into_iter().collect::<ConversationBuilder>().finish();
    let is_complete = messages.last().is_some_and(|last| matches!(last.role, MessageRole::User | MessageRole::Tool));
    if !is_complete {
        messages.push(ChatMessage::user(CONTINUE_PROMPT));
    }
    messages
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
