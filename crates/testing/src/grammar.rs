//! Grammar of `OpenAI` chat, as strict servers enforce it.
//!
//! Pure functions over JSON: property tests of views and loops use them without a server.

use std::collections::HashSet;

use serde_json::Value;

const MAX_PROVIDER_TOOL_NAME_LEN: usize = 64;

/// Returns the violations in the `messages` of a request.
///
/// - Roles are `system`, `developer`, `user`, `assistant` and `tool`.
/// - A user message has content; an assistant message has content or calls.
/// - A call has a non-empty id that is unique in the conversation, a name that providers accept, and its arguments as a
///   string.
/// - A user message comes before any call.
/// - Every call is answered, by the messages that directly follow it, each answer once, and no answer lacks its call.
/// - The last message is one of a user or a tool.
///
/// ```
/// use serde_json::json;
///
/// let messages = [json!({"role": "user", "content": "hi"}), json!({"role": "assistant", "content": "hello"})];
/// assert_eq!(
///     capstan_testing::grammar::violations(&messages),
///     ["the last message is of role assistant, not user or tool"]
/// );
/// ```
pub fn violations(messages: &[Value]) -> Vec<String> {
    let mut validator = ChatValidator::default();
    for (index, message) in messages.iter().enumerate() {
        validator.check_message(index, message);
    }
    validator.finish(messages)
}

/// Returns the violations in the `tools` of a request: names that providers do not accept or that occur twice, and
/// parameters that are not an object schema.
pub fn tool_violations(tools: &[Value]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        if tool["type"] != "function" {
            violations.push(format!("tool {index} is not of type function"));
        }
        let name = tool["function"]["name"].as_str().unwrap_or_default();
        if !is_valid_tool_name(name) {
            violations.push(format!("tool {index} has the name {name:?}, which providers do not accept"));
        }
        if !names.insert(name) {
            violations.push(format!("tool {index} has the name {name:?}, which another tool has"));
        }
        if tool["function"]["parameters"]["type"] != "object" {
            violations.push(format!("tool {index} ({name}) has parameters that are not the schema of an object"));
        }
    }
    violations
}

/// State of a conversation while it is validated.
#[derive(Default)]
struct ChatValidator<'a> {
    violations: Vec<String>,
    has_user_message: bool,
    call_ids: HashSet<&'a str>,
    open_calls: Vec<&'a str>,
}

impl<'a> ChatValidator<'a> {
    fn check_message(&mut self, index: usize, message: &'a Value) {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" {
            self.expect_no_open_call(&format!("message {index} ({role})"));
        }
        match role {
            "system" | "developer" => {}
            "user" => {
                self.has_user_message = true;
                if is_empty_content(&message["content"]) {
                    self.violations.push(format!("message {index} (user) has no content"));
                }
            }
            "assistant" => self.check_assistant(index, message),
            "tool" => self.check_tool_message(index, message),
            other => self.violations.push(format!("message {index} has the unknown role {other:?}")),
        }
    }

    fn check_assistant(&mut self, index: usize, message: &'a Value) {
        let Some(calls) = message.get("tool_calls") else {
            if message["content"].is_null() {
                self.violations.push(format!("message {index} (assistant) has neither content nor calls"));
            }
            return;
        };
        match calls.as_array() {
            Some(calls) if !calls.is_empty() => calls.iter().for_each(|call| self.check_call(index, call)),
            _ => {
                self.violations
                    .push(format!("message {index} (assistant) has tool_calls that are not a list of calls"));
            }
        }
    }

    fn check_call(&mut self, index: usize, call: &'a Value) {
        let id = call["id"].as_str().unwrap_or_default();
        if !self.has_user_message {
            self.violations.push(format!("message {index} calls a tool ({id:?}) before any user message"));
        }
        if id.is_empty() {
            self.violations.push(format!("message {index} has a call without an id"));
        }
        if !self.call_ids.insert(id) {
            self.violations.push(format!("message {index} uses the call id {id:?} again"));
        }
        if call["type"] != "function" {
            self.violations.push(format!("message {index}, call {id:?}, is not of type function"));
        }
        let name = call["function"]["name"].as_str().unwrap_or_default();
        if !is_valid_tool_name(name) {
            self.violations.push(format!("message {index}, call {id:?}, has a name providers do not accept: {name:?}"));
        }
        if !call["function"]["arguments"].is_string() {
            self.violations.push(format!("message {index}, call {id:?}, has arguments that are not a string"));
        }
        self.open_calls.push(id);
    }

    fn check_tool_message(&mut self, index: usize, message: &Value) {
        let id = message["tool_call_id"].as_str().unwrap_or_default();
        match self.open_calls.iter().position(|open| *open == id) {
            Some(position) => {
                self.open_calls.remove(position);
            }
            None => self.violations.push(format!("message {index} (tool) answers {id:?}, which is not an open call")),
        }
        if !message["content"].is_string() && !message["content"].is_array() {
            self.violations.push(format!("message {index} (tool) has no content"));
        }
    }

    fn expect_no_open_call(&mut self, position: &str) {
        for id in std::mem::take(&mut self.open_calls) {
            self.violations.push(format!("the call {id:?} has no answer before {position}"));
        }
    }

    fn finish(mut self, messages: &[Value]) -> Vec<String> {
        self.expect_no_open_call("the end");
        match messages.last().map(|message| message["role"].as_str().unwrap_or_default()) {
            None => self.violations.push("there are no messages".to_owned()),
            Some("user" | "tool") => {}
            Some(role) => self.violations.push(format!("the last message is of role {role}, not user or tool")),
        }
        self.violations
    }
}

fn is_empty_content(content: &Value) -> bool {
    match content {
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => parts.is_empty(),
        _ => true,
    }
}

/// Returns true if providers accept the name of a tool.
pub(crate) fn is_valid_tool_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= MAX_PROVIDER_TOOL_NAME_LEN && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests;
