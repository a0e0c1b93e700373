//! Models behind one trait.

use async_trait::async_trait;
use capstan_protocol::{Map, ModelOutput, ModelRequest, ToolCall, Usage};
use futures::StreamExt as _;
use futures::stream::BoxStream;

/// A provider of models, chosen by the part of a model id before the colon.
#[async_trait]
pub trait ModelProvider: Send + Sync + 'static {
    /// The name before the colon, such as `openai`.
    fn name(&self) -> &str;

    /// Sends a request. The stream ends after [`ModelEvent::Stop`]; one that ends without it was cut off. Dropping it
    /// cancels the call.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError>;
}

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

/// Collects a stream to its end. A stream that ends without [`ModelEvent::Stop`] is an error: what came may be half.
pub async fn collect(mut stream: ModelStream) -> Result<ModelOutput, ModelError> {
    let mut output = ModelOutput::default();
    while let Some(event) = stream.next().await {
        match event? {
            ModelEvent::Text(delta) => output.text.push_str(&delta),
            ModelEvent::Reasoning(_) => {}
            ModelEvent::ToolCall(call) => output.tool_calls.push(call),
            ModelEvent::Usage(usage) => output.usage = Some(usage),
            ModelEvent::ProviderMeta(meta) => output.provider_meta.extend(meta),
            ModelEvent::Stop => return Ok(output),
        }
    }
    Err(ModelError::new(ModelErrorKind::Broken, "the model's stream ended before it was complete"))
}
