//! One answer of a script. How it goes over the wire is the matter of each protocol.

use serde_json::Value;

use crate::ReplyBarrier;

/// One answer of the server, whatever protocol it is asked in.
///
/// ```
/// use capstan_testing::ScriptedReply;
/// use serde_json::json;
///
/// let script = vec![
///     ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo one"}))]).with_text("Let me see."),
///     ScriptedReply::text("done").with_usage(120, 3),
///     ScriptedReply::status(429, r#"{"error": {"message": "slow down"}}"#),
/// ];
/// # drop(script);
/// ```
#[derive(Debug, Clone)]
pub struct ScriptedReply {
    pub(crate) body: ReplyBody,
    pub(crate) barrier: Option<ReplyBarrier>,
    pub(crate) headers: Vec<(String, String)>,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) enum ReplyBody {
    /// A complete answer.
    Completion(ScriptedCompletion),
    /// Another status than 200.
    Status { code: u16, body: String },
    /// A stream whose connection breaks after this text.
    Disconnect { text: String },
    /// A stream that the provider breaks off with an error of its own after this text.
    StreamError { text: String, message: String },
    /// The refusal of a request that is longer than the model takes.
    ContextOverflow,
    /// A stream of these bytes, whatever they are.
    Raw { body: String },
}

/// A complete answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptedCompletion {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<ScriptedToolCall>,
    pub(crate) usage: ScriptedUsage,
    /// It ends at the limit of tokens.
    pub(crate) is_truncated: bool,
}

/// What an answer says it used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptedUsage {
    pub(crate) prompt: u64,
    /// How many of those came from a cache.
    pub(crate) cached: u64,
    pub(crate) completion: u64,
}

impl Default for ScriptedUsage {
    fn default() -> Self {
        Self { prompt: 10, cached: 0, completion: 5 }
    }
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl ScriptedReply {
    fn new(body: ReplyBody) -> Self {
        Self { body, barrier: None, headers: Vec::new() }
    }

    fn completion(text: String, calls: Vec<ScriptedToolCall>) -> Self {
        Self::new(ReplyBody::Completion(ScriptedCompletion { text, calls, ..ScriptedCompletion::default() }))
    }

    /// Text in several chunks, then `stop` and the usage.
    pub fn text(text: impl Into<String>) -> Self {
        Self::completion(text.into(), Vec::new())
    }

    /// [`ScriptedReply::text`] with the tokens of the request and of the reply.
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

    /// [`ScriptedReply::tool_calls`] with the arguments as the model wrote them, valid JSON or not.
    pub fn tool_calls_verbatim<I, S, A>(calls: I) -> Self
    where
        I: IntoIterator<Item = (S, S, A)>,
        S: Into<String>,
        A: Into<String>,
    {
        let calls = calls
            .into_iter()
            .map(|(id, name, arguments)| ScriptedToolCall {
                id: id.into(),
                name: name.into(),
                arguments: arguments.into(),
            })
            .collect();
        Self::completion(String::new(), calls)
    }

    /// A status with a body, such as `(429, r#"{"error": {"message": "slow down"}}"#)`.
    pub fn status(code: u16, body: impl Into<String>) -> Self {
        Self::new(ReplyBody::Status { code, body: body.into() })
    }

    /// Text, after which the connection breaks in mid-stream.
    pub fn disconnect_after(text: impl Into<String>) -> Self {
        Self::new(ReplyBody::Disconnect { text: text.into() })
    }

    /// A stream that is no JSON.
    pub fn invalid_json() -> Self {
        Self::raw("data: {\"choices\": [{\"delta\": <html>\n\ndata: [DONE]\n\n")
    }

    /// A stream of exactly this text, such as `"data: [DONE]\n\n"`.
    pub fn raw(body: impl Into<String>) -> Self {
        Self::new(ReplyBody::Raw { body: body.into() })
    }

    /// Text, after which the provider reports an error in mid-stream.
    pub fn error_after(text: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ReplyBody::StreamError { text: text.into(), message: message.into() })
    }

    /// What the provider says to a request that is longer than the model takes.
    pub fn context_overflow() -> Self {
        Self::new(ReplyBody::ContextOverflow)
    }

    fn map_completion(mut self, change: impl FnOnce(&mut ScriptedCompletion)) -> Self {
        if let ReplyBody::Completion(answer) = &mut self.body {
            change(answer);
        }
        self
    }

    /// Puts text before the calls of an answer.
    pub fn with_text(self, before: impl Into<String>) -> Self {
        self.map_completion(|answer| answer.text = before.into())
    }

    /// Puts reasoning before the text of an answer. Providers that sign it or encrypt it do so, and want it back.
    pub fn with_reasoning(self, before: impl Into<String>) -> Self {
        self.map_completion(|answer| answer.reasoning = before.into())
    }

    /// Sets the tokens of the request and of the reply; 10 and 5 unless said.
    pub fn with_usage(self, prompt: u64, completion: u64) -> Self {
        self.map_completion(|answer| answer.usage = ScriptedUsage { prompt, completion, ..answer.usage })
    }

    /// Says how many tokens of the request came from the provider's cache.
    pub fn with_cached_tokens(self, cached: u64) -> Self {
        self.map_completion(|answer| answer.usage.cached = cached)
    }

    /// Ends the answer at the limit of tokens.
    pub fn truncated(self) -> Self {
        self.map_completion(|answer| answer.is_truncated = true)
    }

    /// Sends a header with it, such as `("retry-after", "1")`.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Holds the answer back after its first chunk until the gate is opened.
    pub fn with_barrier(mut self, gate: &ReplyBarrier) -> Self {
        self.barrier = Some(gate.clone());
        self
    }
}
