//! Message lists that every provider accepts, valid by construction.
//!
//! Whatever is pushed, what comes out obeys one grammar: an assistant message that calls tools is followed at once by
//! exactly one tool message per call; call ids are unique; a user message comes before the first call; a request ends
//! on a user or tool message. Nothing a tape can hold (a crash between call and result, a message that arrived in the
//! middle of a step, a result whose call was cut away) breaks it.

use std::collections::HashMap;

use capstan_protocol::{ChatMessage, Content, Role, ToolCall};

/// The result of a call that never got one.
pub const INTERRUPTED: &str = "[No result: the call was interrupted and its outcome is unknown.]";
/// The user message put before a call that has none before it.
pub const CONTINUED: &str = "[The conversation continues from here.]";
/// The user message that ends a request which would otherwise end on the assistant.
pub const CONTINUE: &str = "Continue.";

/// Builds a message list that obeys the grammar.
#[derive(Debug, Default)]
pub struct Conversation {
    messages: Vec<ChatMessage>,
    step: Option<Step>,
    /// Messages that arrived while a step was open: they follow its results.
    waiting: Vec<ChatMessage>,
    ids: UniqueIds,
    user_spoke: bool,
}

/// Ids of calls, each given once: every one in use, and the number to begin with where it is used again. Somebody may use
/// one id for ever.
#[derive(Debug, Default)]
pub struct UniqueIds(HashMap<String, u64>);

impl UniqueIds {
    /// The id of a call that was written with this one: the same, unless it is empty or was given before.
    pub fn of(&mut self, written: &str) -> String {
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
struct Step {
    message: ChatMessage,
    /// The ids as they were written, by position; the message has unique ones.
    written_ids: Vec<String>,
    answers: Vec<Option<Content>>,
}

/// How a result says which call it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers<'a> {
    /// By the id of the call.
    Call(&'a str),
    /// The first call of the step that has no result yet, as on tapes without ids.
    Next,
}

impl Conversation {
    /// An empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message. Messages with calls or of a tool take part in the pairing; empty ones are left out.
    pub fn push(&mut self, mut message: ChatMessage) {
        if message.role != Role::Assistant {
            // A tape of another system may say otherwise, but only the assistant calls tools.
            message.tool_calls.clear();
        }
        match message.role {
            Role::Assistant if !message.tool_calls.is_empty() => self.push_calls(message),
            Role::Tool => {
                let answers = message.tool_call_id.as_deref().map_or(Answers::Next, Answers::Call);
                self.push_result(answers, message.content.clone());
            }
            Role::System | Role::User | Role::Assistant if message.content.is_empty() => {}
            Role::System | Role::User | Role::Assistant => {
                if self.step.as_ref().is_some_and(Step::is_open) {
                    self.waiting.push(message);
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
            call.id = self.ids.of(&call.id);
        }
        if written_ids.is_empty() {
            message.tool_calls.clear();
            return self.push(message);
        }
        let answers = vec![None; written_ids.len()];
        self.step = Some(Step { message, written_ids, answers });
    }

    /// Adds a result to the step before it. One that answers no call of that step is left out.
    pub fn push_result(&mut self, answers: Answers<'_>, content: Content) {
        let Some(step) = &mut self.step else { return };
        let unanswered = |position: &usize| step.answers[*position].is_none();
        let mut positions = 0..step.answers.len();
        let position = match answers {
            Answers::Next => positions.find(unanswered),
            Answers::Call(id) => positions.filter(unanswered).find(|position| step.written_ids[*position] == id),
        };
        if let Some(position) = position {
            step.answers[position] = Some(content);
        }
    }

    fn close_step(&mut self) {
        if let Some(step) = self.step.take() {
            if !self.user_spoke {
                self.emit(ChatMessage::user(CONTINUED));
            }
            let calls: Vec<ToolCall> = step.message.tool_calls.clone();
            self.messages.push(step.message);
            for (call, answer) in calls.into_iter().zip(step.answers) {
                let content = answer.unwrap_or_else(|| INTERRUPTED.into());
                self.messages.push(ChatMessage::tool(call.id, call.function.name, content));
            }
        }
        for message in std::mem::take(&mut self.waiting) {
            self.emit(message);
        }
    }

    fn emit(&mut self, message: ChatMessage) {
        self.user_spoke |= message.role == Role::User;
        self.messages.push(message);
    }

    /// The messages, every call answered.
    pub fn finish(mut self) -> Vec<ChatMessage> {
        self.close_step();
        self.messages
    }
}

impl Step {
    fn is_open(&self) -> bool {
        self.answers.iter().any(Option::is_none)
    }
}

impl FromIterator<ChatMessage> for Conversation {
    fn from_iter<I: IntoIterator<Item = ChatMessage>>(messages: I) -> Self {
        let mut conversation = Self::new();
        messages.into_iter().for_each(|message| conversation.push(message));
        conversation
    }
}

/// Makes any message list one that can be sent: paired, and ending on a user or tool message.
pub fn request(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut messages = messages.into_iter().collect::<Conversation>().finish();
    let ends_well = messages.last().is_some_and(|last| matches!(last.role, Role::User | Role::Tool));
    if !ends_well {
        messages.push(ChatMessage::user(CONTINUE));
    }
    messages
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
