//! What providers demand of a request, written down apart from the code that obeys it.

use std::collections::HashSet;

use capstan_protocol::{ChatMessage, Role};

/// Everything a provider would object to.
pub fn violations(request: &[ChatMessage]) -> Vec<String> {
    let mut found = openai(request);
    let turns = turns(request);
    found.extend(anthropic(&turns));
    found.extend(gemini(&turns));
    found
}

/// `OpenAI` chat: every call answered at once, by one tool message each; nothing else answers.
fn openai(request: &[ChatMessage]) -> Vec<String> {
    let mut found = Vec::new();
    let mut all_ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut user_spoke = false;
    for (at, message) in request.iter().enumerate() {
        if message.role == Role::Tool {
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
        user_spoke |= message.role == Role::User;
        if message.tool_calls.is_empty() && message.content.is_empty() {
            found.push(format!("openai: message {at} says nothing"));
        }
        if !message.tool_calls.is_empty() && message.role != Role::Assistant {
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
        Some(Role::User | Role::Tool) => {}
        last => found.push(format!("openai: the request ends on {last:?}")),
    }
    found
}

#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text,
    Call(&'a str),
    Result(&'a str),
}

/// What one side says until the other does.
#[derive(Debug)]
struct Turn<'a> {
    is_model: bool,
    parts: Vec<Part<'a>>,
}

impl<'a> Turn<'a> {
    fn calls(&self) -> Vec<&'a str> {
        let id = |part: &Part<'a>| if let Part::Call(id) = part { Some(*id) } else { None };
        self.parts.iter().filter_map(id).collect()
    }

    fn results(&self) -> Vec<&'a str> {
        let id = |part: &Part<'a>| if let Part::Result(id) = part { Some(*id) } else { None };
        self.parts.iter().filter_map(id).collect()
    }
}

/// The request as two sides that take turns: system messages go elsewhere, tool results are the user's.
fn turns(request: &[ChatMessage]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for message in request.iter().filter(|message| message.role != Role::System) {
        let is_model = message.role == Role::Assistant;
        let mut parts = Vec::new();
        match message.role {
            Role::Tool => parts.push(Part::Result(message.tool_call_id.as_deref().unwrap_or_default())),
            _ if !message.content.is_empty() => parts.push(Part::Text),
            _ => {}
        }
        parts.extend(message.tool_calls.iter().map(|call| Part::Call(&call.id)));
        match turns.last_mut() {
            Some(turn) if turn.is_model == is_model => turn.parts.extend(parts),
            _ => turns.push(Turn { is_model, parts }),
        }
    }
    turns
}

/// Anthropic: the turn after a `tool_use` begins with exactly its results.
fn anthropic(turns: &[Turn<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let expected = if at == 0 { Vec::new() } else { turns[at - 1].calls() };
        let first: Vec<&str> = turn.results().into_iter().take(expected.len()).collect();
        let are_first = turn.parts.iter().take(expected.len()).all(|part| matches!(part, Part::Result(_)));
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
fn gemini(turns: &[Turn<'_>]) -> Vec<String> {
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
