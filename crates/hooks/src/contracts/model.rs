//! Models behind one trait.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::run_api::ModelEvent;
use capstan_protocol::{ApiError, ApiErrorCode, CodedError, JsonObject, ModelOutput, ModelRequest};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::ModelResultStream;

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
    fn request_body(&self, _request: &ModelRequest) -> Option<RequestBody> {
        None
    }

    /// The same as [`stream`](Self::stream) with the text of the [`body`](Self::body) that was made and recorded, if there is
    /// one. Says before each wait for another try why and how long it waits.
    async fn send_recorded(
        &self,
        request: &ModelRequest,
        _body: Option<RequestBodyText>,
        _waits: RetryObserver<'_>,
    ) -> Result<ModelStream, ModelError> {
        self.stream(request).await
    }
}

/// The body of a request as a provider receives it, with its lists apart: they grow, and are kept item by item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestBody {
    /// Everything but the lists, the system prompt included where a provider has it apart.
    pub rest: JsonObject,
    /// The tools; the key is not sent when there are none.
    pub tools: ToolList,
    /// What the provider calls the conversation: `messages`, `contents`, `input`.
    pub messages_key: String,
    /// The conversation.
    pub messages: Vec<Value>,
}

impl RequestBody {
    /// The whole body as it is sent.
    pub fn to_text(&self) -> RequestBodyText {
        // Neither a key that is no text nor a failing writer is there, which is all that could fail.
        RequestBodyText(serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether a list of the body has this key: then nothing else has.
    fn is_list_key(&self, key: &str) -> bool {
        key == self.messages_key || (key == TOOLS_KEY && !self.tools.is_empty())
    }

    /// Adds what has no place in its lists, which stay as they are.
    pub fn edit_rest(&mut self, add: impl FnOnce(&mut JsonObject)) {
        add(&mut self.rest);
        let mut rest = std::mem::take(&mut self.rest);
        rest.retain(|key, _| !self.is_list_key(key));
        self.rest = rest;
    }
}

const TOOLS_KEY: &str = "tools";

/// The whole body. The tools stand before the conversation, as providers cache prompts.
impl Serialize for RequestBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        for (key, value) in self.rest.iter().filter(|(key, _)| !self.is_list_key(key)) {
            body.serialize_entry(key, value)?;
        }
        if !self.tools.is_empty() {
            body.serialize_entry(TOOLS_KEY, &self.tools)?;
        }
        body.serialize_entry(&self.messages_key, &self.messages)?;
        body.end()
    }
}

/// The text of a [`RequestBody`]. There is no other way to have one, so nothing is sent that was never a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestBodyText(String);

impl From<RequestBodyText> for String {
    fn from(text: RequestBodyText) -> Self {
        text.0
    }
}

/// The tools of a body. They are many, and in most requests the same ones: their text is written once.
///
/// ```
/// use capstan_hooks::contracts::ToolList;
/// use serde_json::json;
///
/// let tools = ToolList::from_iter([json!({"name": "fs_read"})]);
/// assert_eq!(tools[0]["name"], "fs_read");
/// assert_eq!(serde_json::to_string(&tools).unwrap(), r#"[{"name":"fs_read"}]"#);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ToolList(Arc<SharedToolList>);

#[derive(Debug, Default)]
struct SharedToolList {
    values: Vec<Value>,
    /// Nothing where they cannot be written, which does not happen.
    text: OnceLock<Option<Box<RawValue>>>,
}

impl Deref for ToolList {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0.values
    }
}

impl FromIterator<Value> for ToolList {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        Self(Arc::new(SharedToolList { values: values.into_iter().collect(), text: OnceLock::new() }))
    }
}

impl PartialEq for ToolList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Serialize for ToolList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.text.get_or_init(|| to_raw_value(&self.0.values).ok()) {
            Some(text) => text.serialize(serializer),
            None => self.0.values.serialize(serializer),
        }
    }
}

/// Is told of each wait of a provider for another try: why it waits, and how long.
pub type RetryObserver<'a> = &'a (dyn Fn(&ModelError, Duration) + Send + Sync);

/// What a model emits, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, CodedError)]
pub enum ModelErrorKind {
    /// Nobody answered at the address.
    #[code(ModelUnreachable)]
    Unreachable,
    /// The key is missing or was refused.
    #[code(ModelUnauthorized)]
    Unauthorized,
    /// No such provider or model.
    #[code(ModelUnknown)]
    UnknownModel,
    /// The provider asks to come back later.
    #[code(ModelRateLimited)]
    RateLimited,
    /// The request is longer than the model takes.
    #[code(ModelContextOverflow)]
    ContextOverflow,
    /// The provider refused the request.
    #[code(ModelRejected)]
    Rejected,
    /// The stream broke off or made no sense.
    #[code(ModelBroken)]
    Broken,
}

/// What is wrong with an answer that ends without [`ModelEvent::Stop`].
const INCOMPLETE_STREAM_MESSAGE: &str = "the model's stream ended before it was complete";

/// Collects a stream to its end. A stream that ends without [`ModelEvent::Stop`] is an error: what came may be half.
pub async fn collect_output(stream: ModelStream) -> Result<ModelOutput, ModelError> {
    try_collect_output(stream).await?.ok_or_else(|| ModelError::new(ModelErrorKind::Broken, INCOMPLETE_STREAM_MESSAGE))
}

/// Collects an answer that came through the host to its end. One that ends without [`ModelEvent::Stop`] is an error: it
/// may be incomplete.
pub async fn collect_api_output(events: ModelResultStream) -> Result<ModelOutput, ApiError> {
    try_collect_output(events)
        .await?
        .ok_or_else(|| ApiError::new(ApiErrorCode::RuntimeError, INCOMPLETE_STREAM_MESSAGE))
}

/// Collects what a model emits; nothing if it ends without [`ModelEvent::Stop`].
async fn try_collect_output<E>(
    mut events: BoxStream<'static, Result<ModelEvent, E>>,
) -> Result<Option<ModelOutput>, E> {
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
