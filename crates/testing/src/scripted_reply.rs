//! Reply of a script, independent of the wire protocol.

use serde_json::Value;

use crate::ReplyBarrier;

/// Reply of the server, in the protocol of the request.
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

/// Content of a reply.
#[derive(Debug, Clone)]
pub(crate) enum ReplyBody {
    /// Complete reply.
    Completion(ScriptedCompletion),
    /// Status other than 200.
    Status { code: u16, body: String },
    /// Stream whose connection breaks after this text.
    Disconnect { text: String },
    /// Stream in which the provider reports an error after this text.
    StreamError { text: String, message: String },
    /// Refusal of a request that exceeds the context window.
    ContextOverflow,
    /// Stream of arbitrary bytes.
    Raw { body: String },
}

/// Complete reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptedCompletion {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<ScriptedToolCall>,
    pub(crate) usage: ScriptedUsage,
    /// The reply ends at the token limit.
    pub(crate) is_truncated: bool,
}

/// Token usage reported with a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptedUsage {
    pub(crate) prompt: u64,
    /// Number of prompt tokens that came from a cache.
    pub(crate) cached: u64,
    pub(crate) completion: u64,
}

impl Default for ScriptedUsage {
    fn default() -> Self {
        Self { prompt: 10, cached: 0, completion: 5 }
    }
}

/// Tool call of a reply.
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

    /// Creates a text reply in several chunks, followed by `stop` and the usage.
    pub fn text(text: impl Into<String>) -> Self {
        Self::completion(text.into(), Vec::new())
    }

    /// [`ScriptedReply::text`] with the tokens of the request and of the reply.
    pub fn text_with_usage(text: impl Into<String>, prompt: u64, completion: u64) -> Self {
        Self::text(text).with_usage(prompt, completion)
    }

    /// Creates a reply with calls as (id, name, arguments); the arguments are sent in fragments, followed by
    /// `tool_calls` and the usage.
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

    /// Creates a reply with a status and a body, such as `(429, r#"{"error": {"message": "slow down"}}"#)`.
    pub fn status(code: u16, body: impl Into<String>) -> Self {
        Self::new(ReplyBody::Status { code, body: body.into() })
    }

    /// Creates a text reply whose connection breaks in mid-stream.
    pub fn disconnect_after(text: impl Into<String>) -> Self {
        Self::new(ReplyBody::Disconnect { text: text.into() })
    }

    /// Creates a stream that is not JSON.
    pub fn invalid_json() -> Self {
        Self::raw("data: {\"choices\": [{\"delta\": <html>\n\ndata: [DONE]\n\n")
    }

    /// Creates a stream of exactly this text, such as `data: [DONE]` and an empty line.
    pub fn raw(body: impl Into<String>) -> Self {
        Self::new(ReplyBody::Raw { body: body.into() })
    }

    /// Creates a text reply after which the provider reports an error in mid-stream.
    pub fn error_after(text: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ReplyBody::StreamError { text: text.into(), message: message.into() })
    }

    /// Creates the provider's response to a request that exceeds the context window.
    pub fn context_overflow() -> Self {
        Self::new(ReplyBody::ContextOverflow)
    }

    fn map_completion(mut self, change: impl FnOnce(&mut ScriptedCompletion)) -> Self {
        if let ReplyBody::Completion(completion) = &mut self.body {
            change(completion);
        }
        self
    }

    /// Adds text before the calls.
    pub fn with_text(self, before: impl Into<String>) -> Self {
        self.map_completion(|completion| completion.text = before.into())
    }

    /// Adds reasoning before the text. Providers that sign or encrypt reasoning do so, and expect it back.
    pub fn with_reasoning(self, before: impl Into<String>) -> Self {
        self.map_completion(|completion| completion.reasoning = before.into())
    }

    /// Sets the tokens of the request and of the reply; the default is 10 and 5.
    pub fn with_usage(self, prompt: u64, completion: u64) -> Self {
        self.map_completion(|reply| reply.usage = ScriptedUsage { prompt, completion, ..reply.usage })
    }

    /// Sets the number of prompt tokens that came from the provider's cache.
    pub fn with_cached_tokens(self, cached: u64) -> Self {
        self.map_completion(|completion| completion.usage.cached = cached)
    }

    /// Ends the reply at the token limit.
    pub fn truncated(self) -> Self {
        self.map_completion(|completion| completion.is_truncated = true)
    }

    /// Adds a response header, such as `("retry-after", "1")`.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Holds the reply back after its first chunk until the barrier is released.
    pub fn with_barrier(mut self, barrier: &ReplyBarrier) -> Self {
        self.barrier = Some(barrier.clone());
        self
    }
}
