//! Models behind one trait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::{Map, ModelOutput, ModelRequest, ToolCall, Usage};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A provider of models, chosen by the part of a model id before the colon.
#[async_trait]
pub trait ModelProvider: Send + Sync + 'static {
    /// The name before the colon, such as `openai`.
    fn name(&self) -> &str;

    /// Sends a request. The stream ends after [`ModelEvent::Stop`]; one that ends without it was cut off. Dropping it
    /// cancels the call.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError>;

    /// The body that [`stream`](Self::stream) sends for this request: a pure function, so that it can be recorded
    /// before it is sent. A provider that says nothing here is recorded in the form of `OpenAI` chat.
    fn body(&self, _request: &ModelRequest) -> Option<RequestBody> {
        None
    }

    /// The text of a [`body`](Self::body), as it is sent.
    fn text(&self, body: &RequestBody) -> String {
        body.to_json()
    }

    /// The same as [`stream`](Self::stream) with the [`text`](Self::text) of the body that was made and recorded, if there is
    /// one. Says before each wait for another try why and how long it waits.
    async fn send(
        &self,
        request: &ModelRequest,
        _text: Option<String>,
        _waits: Waits<'_>,
    ) -> Result<ModelStream, ModelError> {
        self.stream(request).await
    }
}

/// The body of a request as a provider receives it, with its lists apart: they grow, and are kept item by item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestBody {
    /// Everything but the lists, the system prompt included where a provider has it apart.
    pub rest: Map,
    /// The tools; the key is not sent when there are none.
    pub tools: Arc<[Value]>,
    /// What the provider calls the conversation: `messages`, `contents`, `input`.
    pub messages_key: String,
    /// The conversation.
    pub messages: Vec<Value>,
}

impl RequestBody {
    /// The whole body as it is sent.
    pub fn to_json(&self) -> String {
        // Neither a key that is no text nor a failing writer is there, which is all that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same with its tools as they were written before.
    pub fn to_json_with(&self, tools: &RawValue) -> String {
        serde_json::to_string(&WithTools { body: self, tools }).unwrap_or_default()
    }

    fn serialize_with<S: Serializer>(&self, tools: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
        let tools = (!self.tools.is_empty()).then_some(tools);
        let is_list = |key: &str| key == self.messages_key || (tools.is_some() && key == TOOLS);
        let mut body = serializer.serialize_map(None)?;
        for (key, value) in self.rest.iter().filter(|(key, _)| !is_list(key)) {
            body.serialize_entry(key, value)?;
        }
        if let Some(tools) = tools {
            body.serialize_entry(TOOLS, tools)?;
        }
        body.serialize_entry(&self.messages_key, &self.messages)?;
        body.end()
    }
}

const TOOLS: &str = "tools";

struct WithTools<'a> {
    body: &'a RequestBody,
    tools: &'a RawValue,
}

impl Serialize for WithTools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.body.serialize_with(&self.tools, serializer)
    }
}

/// The whole body. The tools stand before the conversation, as providers cache prompts.
impl Serialize for RequestBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize_with(&self.tools, serializer)
    }
}

/// Is told of each wait of a provider for another try: why it waits, and how long.
pub type Waits<'a> = &'a (dyn Fn(&ModelError, Duration) + Send + Sync);

/// What a model emits, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// One event of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A whole tool call.
    ToolCall(ToolCall),
    /// What the call used.
    Usage(Usage),
    /// Opaque provider data that must come back with this message.
    ProviderMeta(Map),
    /// The answer reached the limit of tokens and is not whole. A call of it whose arguments are not the JSON of an object
    /// was cut off: nobody knows what it was to do, and it must not be made.
    Truncated,
    /// The model is done.
    Stop,
}

/// Why a model did not answer. The message names provider and status, and holds neither the key nor the prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure it is.
    pub kind: ModelErrorKind,
    /// What happened.
    pub message: String,
}

impl ModelError {
    /// A failure of this kind.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Nobody answered at the address.
    Unreachable,
    /// The key is missing or was refused.
    Unauthorized,
    /// No such provider or model.
    UnknownModel,
    /// The provider asks to come back later.
    RateLimited,
    /// The request is longer than the model takes.
    ContextOverflow,
    /// The provider refused the request.
    Rejected,
    /// The stream broke off or made no sense.
    Broken,
}

impl ModelErrorKind {
    /// The stable code, which has a page in the documentation.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "model-unreachable",
            Self::Unauthorized => "model-unauthorized",
            Self::UnknownModel => "model-unknown",
            Self::RateLimited => "model-rate-limited",
            Self::ContextOverflow => "model-context-overflow",
            Self::Rejected => "model-rejected",
            Self::Broken => "model-broken",
        }
    }
}

/// What is wrong with an answer that ends without [`ModelEvent::Stop`].
pub(super) const INCOMPLETE: &str = "the model's stream ended before it was complete";

/// Collects a stream to its end. A stream that ends without [`ModelEvent::Stop`] is an error: what came may be half.
pub async fn collect(stream: ModelStream) -> Result<ModelOutput, ModelError> {
    gather(stream).await?.ok_or_else(|| ModelError::new(ModelErrorKind::Broken, INCOMPLETE))
}

/// Collects what a model emits; nothing if it ends without [`ModelEvent::Stop`].
pub(super) async fn gather<E>(mut events: BoxStream<'static, Result<ModelEvent, E>>) -> Result<Option<ModelOutput>, E> {
    let mut output = ModelOutput::default();
    while let Some(event) = events.next().await {
        match event? {
            ModelEvent::Text(delta) => output.text.push_str(&delta),
            ModelEvent::Reasoning(_) | ModelEvent::Truncated => {}
            ModelEvent::ToolCall(call) => output.tool_calls.push(call),
            ModelEvent::Usage(usage) => output.usage = Some(usage),
            ModelEvent::ProviderMeta(meta) => output.provider_meta.extend(meta),
            ModelEvent::Stop => return Ok(Some(output)),
        }
    }
    Ok(None)
}
