//! What providers demand of a request, written down apart from the code that obeys it.

use std::collections::HashSet;

use capstan_protocol::{ChatMessage, MessageRole};

/// Everything a provider would object to.
pub fn violations(request: &[ChatMessage]) -> Vec<String> {
    let mut found = openai_violations(request);
    let turns = group_by_role(request);
    found.extend(anthropic_violations(&turns));
    found.extend(gemini_violations(&turns));
    found
}

/// `OpenAI` chat: every call answered at once, by one tool message each; nothing else answers.
fn openai_violations(request: &[ChatMessage]) -> Vec<String> {
    let mut found = Vec::new();
    let mut all_ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut user_spoke = false;
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
        user_spoke |= message.role == MessageRole::User;
        if message.tool_calls.is_empty() && message.content.is_empty() {
            found.push(format!("openai: message {at} says nothing"));
        }
        if !message.tool_calls.is_empty() && message.role != MessageRole::Assistant {
            found.push(format!("openai: message {at} calls tools but is not the assistant's"));
        }
        for call in &message.tool_calls {
            if !user_spoke {
                found.push(format!("openai: message {at} calls a tool before the user spoke"));
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

/// What one side says until the other does.
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

/// The request as two sides that take turns: system messages go elsewhere, tool results are the user's.
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
        let first: Vec<&str> = turn.results().into_iter().take(expected.len()).collect();
        let are_first = turn.parts.iter().take(expected.len()).all(|part| matches!(part, TurnPart::Result(_)));
        let same: HashSet<&&str> = expected.iter().collect();
        if first.len() != expected.len() || !are_first || same != first.iter().collect() {
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

/// Gemini: calls come right after the user's turn, and as many responses right after them.
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
