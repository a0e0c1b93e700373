//! Requirements of providers on a request, implemented independently of the code under test.

use std::collections::HashSet;

use capstan_protocol::{ChatMessage, MessageRole};

/// Violations of the requirements of any provider.
pub fn violations(request: &[ChatMessage]) -> Vec<String> {
    let mut found = openai_violations(request);
    let turns = group_by_role(request);
    found.extend(anthropic_violations(&turns));
    found.extend(gemini_violations(&turns));
    found
}

/// `OpenAI` chat: each call is followed immediately by exactly one tool message, and there are no other tool messages.
fn openai_violations(request: &[ChatMessage]) -> Vec<String> {
    let mut found = Vec::new();
    let mut all_ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut has_user_message = false;
    for (at, message) in request.iter().enumerate() {
        if message.role == MessageRole::Tool {
            let answered = message.tool_call_id.as_deref().unwrap_or_default();
            match open.iter().position(|id| *id == answered) {
                Some(position) => drop(open.remove(position)),
                None => found.push(format!("openai: message {at} answers {answered:?}, which is not open")),
            }
            if message.name.as_deref().unwrap_or_default().is_empty() {
                found.push(format!("openai: tool message {at} names no tool"));
            }
            continue;
        }
        if !open.is_empty() {
            found.push(format!("openai: message {at} comes before the answers to {open:?}"));
            open.clear();
        }
        has_user_message |= message.role == MessageRole::User;
        if message.tool_calls.is_empty() && message.content.is_empty() {
            found.push(format!("openai: message {at} is empty"));
        }
        if !message.tool_calls.is_empty() && message.role != MessageRole::Assistant {
            found.push(format!("openai: message {at} calls tools but is not the assistant's"));
        }
        for call in &message.tool_calls {
            if !has_user_message {
                found.push(format!("openai: message {at} calls a tool before any user message"));
            }
            if call.id.is_empty() || !all_ids.insert(call.id.as_str()) {
                found.push(format!("openai: call id {:?} is empty or used twice", call.id));
            }
            open.push(&call.id);
        }
    }
    if !open.is_empty() {
        found.push(format!("openai: nothing answers {open:?}"));
    }
    match request.last().map(|last| last.role) {
        Some(MessageRole::User | MessageRole::Tool) => {}
        last => found.push(format!("openai: the request ends on {last:?}")),
    }
    found
}

#[derive(Debug, PartialEq)]
enum TurnPart<'a> {
    Text,
    Call(&'a str),
    Result(&'a str),
}

/// Consecutive messages of one side.
#[derive(Debug)]
struct RoleTurn<'a> {
    is_model: bool,
    parts: Vec<TurnPart<'a>>,
}

impl<'a> RoleTurn<'a> {
    fn calls(&self) -> Vec<&'a str> {
        let id = |part: &TurnPart<'a>| if let TurnPart::Call(id) = part { Some(*id) } else { None };
        self.parts.iter().filter_map(id).collect()
    }

    fn results(&self) -> Vec<&'a str> {
        let id = |part: &TurnPart<'a>| if let TurnPart::Result(id) = part { Some(*id) } else { None };
        self.parts.iter().filter_map(id).collect()
    }
}

/// Groups a request into alternating turns of user and model. System messages are excluded; tool results belong to the
/// user.
fn group_by_role(request: &[ChatMessage]) -> Vec<RoleTurn<'_>> {
    let mut turns: Vec<RoleTurn<'_>> = Vec::new();
    for message in request.iter().filter(|message| message.role != MessageRole::System) {
        let is_model = message.role == MessageRole::Assistant;
        let mut parts = Vec::new();
        match message.role {
            MessageRole::Tool => parts.push(TurnPart::Result(message.tool_call_id.as_deref().unwrap_or_default())),
            _ if !message.content.is_empty() => parts.push(TurnPart::Text),
            _ => {}
        }
        parts.extend(message.tool_calls.iter().map(|call| TurnPart::Call(&call.id)));
        match turns.last_mut() {
            Some(turn) if turn.is_model == is_model => turn.parts.extend(parts),
            _ => turns.push(RoleTurn { is_model, parts }),
        }
    }
    turns
}

/// Anthropic: the turn after a `tool_use` begins with exactly its results.
fn anthropic_violations(turns: &[RoleTurn<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let expected = if at == 0 { Vec::new() } else { turns[at - 1].calls() };
        let results: Vec<&str> = turn.results().into_iter().take(expected.len()).collect();
        let are_first = turn.parts.iter().take(expected.len()).all(|part| matches!(part, TurnPart::Result(_)));
        let expected_ids: HashSet<&&str> = expected.iter().collect();
        if results.len() != expected.len() || !are_first || expected_ids != results.iter().collect() {
            found.push(format!("anthropic: turn {at} does not begin with the results of {expected:?}"));
        }
        if turn.results().len() != expected.len() {
            found.push(format!("anthropic: turn {at} has results of no call before it"));
        }
    }
    if turns.last().is_some_and(|turn| !turn.calls().is_empty()) {
        found.push("anthropic: the last turn has a call without a result".to_owned());
    }
    found
}

/// Gemini: calls follow a turn of the user directly, and are followed directly by the same number of responses.
fn gemini_violations(turns: &[RoleTurn<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let calls = turn.calls().len();
        if calls > 0 && (at == 0 || turns[at - 1].is_model) {
            found.push(format!("gemini: the calls of turn {at} follow no turn of the user"));
        }
        let responses = turns.get(at + 1).map_or(0, |next| next.results().len());
        if calls != responses {
            found.push(format!("gemini: turn {at} has {calls} calls and {responses} responses"));
        }
    }
    found
}
