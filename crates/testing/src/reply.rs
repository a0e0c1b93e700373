//! One answer of a script, and how it goes over the wire.

use serde_json::{Value, json};

use crate::Gate;

const FRAGMENT: usize = 7;

/// One answer of the server.
///
/// ```
/// use capstan_testing::Reply;
/// use serde_json::json;
///
/// let script = vec![
///     Reply::tool_calls([("call_1", "bash", json!({"cmd": "echo one"}))]).with_text("Let me see."),
///     Reply::text("done").with_usage(120, 3),
///     Reply::status(429, r#"{"error": {"message": "slow down"}}"#),
/// ];
/// # drop(script);
/// ```
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) body: Body,
    pub(crate) gate: Option<Gate>,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// A complete answer.
    Answer { reasoning: String, text: String, calls: Vec<Call>, usage: (u64, u64) },
    /// Another status than 200.
    Status { code: u16, body: String },
    /// A stream whose connection breaks after this text.
    Cut { text: String },
    /// A stream of these bytes, whatever they are.
    Raw { body: String },
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Reply {
    fn new(body: Body) -> Self {
        Self { body, gate: None }
    }

    fn answer(text: String, calls: Vec<Call>) -> Self {
        Self::new(Body::Answer { reasoning: String::new(), text, calls, usage: (10, 5) })
    }

    /// Text in several chunks, then `stop` and the usage.
    pub fn text(text: impl Into<String>) -> Self {
        Self::answer(text.into(), Vec::new())
    }

    /// [`Reply::text`] with the tokens of the request and of the reply.
    pub fn text_with_usage(text: impl Into<String>, prompt: u64, completion: u64) -> Self {
        Self::text(text).with_usage(prompt, completion)
    }

    /// Calls as (id, name, arguments), their arguments in fragments, then `tool_calls` and the usage.
    pub fn tool_calls<I, S>(calls: I) -> Self
    where
        I: IntoIterator<Item = (S, S, Value)>,
        S: Into<String>,
    {
        Self::tool_calls_verbatim(calls.into_iter().map(|(id, name, arguments)| (id, name, arguments.to_string())))
    }

    /// [`Reply::tool_calls`] with the arguments as the model wrote them, valid JSON or not.
    pub fn tool_calls_verbatim<I, S, A>(calls: I) -> Self
    where
        I: IntoIterator<Item = (S, S, A)>,
        S: Into<String>,
        A: Into<String>,
    {
        let calls = calls
            .into_iter()
            .map(|(id, name, arguments)| Call { id: id.into(), name: name.into(), arguments: arguments.into() })
            .collect();
        Self::answer(String::new(), calls)
    }

    /// A status with a body, such as `(429, r#"{"error": {"message": "slow down"}}"#)`.
    pub fn status(code: u16, body: impl Into<String>) -> Self {
        Self::new(Body::Status { code, body: body.into() })
    }

    /// Text, after which the connection breaks in mid-stream.
    pub fn cut_after(text: impl Into<String>) -> Self {
        Self::new(Body::Cut { text: text.into() })
    }

    /// A stream that is no JSON.
    pub fn garbage() -> Self {
        Self::raw("data: {\"choices\": [{\"delta\": <html>\n\ndata: [DONE]\n\n")
    }

    /// A stream of exactly this text, such as `"data: [DONE]\n\n"`.
    pub fn raw(body: impl Into<String>) -> Self {
        Self::new(Body::Raw { body: body.into() })
    }

    /// Puts text before the calls of an answer.
    pub fn with_text(mut self, before: impl Into<String>) -> Self {
        if let Body::Answer { text, .. } = &mut self.body {
            *text = before.into();
        }
        self
    }

    /// Puts reasoning before the text of an answer.
    pub fn with_reasoning(mut self, before: impl Into<String>) -> Self {
        if let Body::Answer { reasoning, .. } = &mut self.body {
            *reasoning = before.into();
        }
        self
    }

    /// Sets the tokens of the request and of the reply; 10 and 5 unless said.
    pub fn with_usage(mut self, prompt: u64, completion: u64) -> Self {
        if let Body::Answer { usage, .. } = &mut self.body {
            *usage = (prompt, completion);
        }
        self
    }

    /// Holds the answer back after its first chunk until the gate is opened.
    pub fn held_at(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }
}

/// The frames of a complete answer, the first of which carries the first word.
pub(crate) fn answer_frames(body: &Body, include_usage: bool) -> Vec<String> {
    match body {
        Body::Answer { reasoning, text, calls, usage } => {
            let mut frames = Vec::new();
            frames.extend(words(reasoning).map(|word| delta(&json!({"reasoning_content": word}))));
            frames.extend(words(text).map(|word| delta(&json!({"content": word}))));
            frames.extend(calls.iter().enumerate().flat_map(|(index, call)| call_frames(index, call)));
            frames.push(finish(if calls.is_empty() { "stop" } else { "tool_calls" }));
            if include_usage {
                let (prompt, completion) = *usage;
                frames.push(frame(&json!({"choices": [], "usage": {
                    "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
                }})));
            }
            frames.push("data: [DONE]\n\n".to_owned());
            frames
        }
        Body::Cut { text } => words(text).map(|word| delta(&json!({"content": word}))).collect(),
        Body::Raw { body } => vec![body.clone()],
        Body::Status { .. } => Vec::new(),
    }
}

fn call_frames(index: usize, call: &Call) -> Vec<String> {
    let opening = json!({"tool_calls": [
        {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    ]});
    let letters: Vec<char> = call.arguments.chars().collect();
    let fragments = letters.chunks(FRAGMENT).map(|fragment| {
        let fragment: String = fragment.iter().collect();
        delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}))
    });
    std::iter::once(delta(&opening)).chain(fragments).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

fn delta(delta: &Value) -> String {
    frame(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn finish(reason: &str) -> String {
    frame(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

fn frame(chunk: &Value) -> String {
    let mut whole = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0});
    if let (Some(whole), Some(chunk)) = (whole.as_object_mut(), chunk.as_object()) {
        whole.extend(chunk.clone());
    }
    format!("data: {whole}\n\n")
}
