//! Contract of model providers.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::run_api::{ModelEvent, RerankScore};
use capstan_protocol::{ApiError, ApiErrorCode, CodedError, JsonObject, ModelId, ModelOutput, ModelRequest, Timestamp};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::ModelResultStream;

/// Provider of models, selected by the part of a model id before the colon.
#[async_trait]
pub trait ModelProvider: Send + Sync + 'static {
    /// Name before the colon, such as `openai`.
    fn name(&self) -> &str;

    /// Sends a request. The stream ends after [`ModelEvent::Stop`]; a stream that ends without it is incomplete.
    /// Dropping the stream cancels the call.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError>;

    /// Body that [`stream`](Self::stream) sends for this request. A pure function, so that the body can be recorded
    /// before it is sent. If `None`, the request is recorded in the `OpenAI` chat format.
    fn request_body(&self, _request: &ModelRequest) -> Option<RequestBody> {
        None
    }

    /// Like [`stream`](Self::stream), with the recorded text of the [body](Self::request_body), if there is one. Tells
    /// the observer about retries and keys.
    async fn send_recorded(
        &self,
        request: &ModelRequest,
        _body: Option<RequestBodyText>,
        _observer: &dyn CallObserver,
    ) -> Result<ModelStream, ModelError> {
        self.stream(request).await
    }

    /// Returns true if the provider ranks texts.
    fn can_rerank(&self) -> bool {
        false
    }

    /// Ranks texts by relevance to a query, in any order. Called only if the provider [can](Self::can_rerank).
    async fn rerank(
        &self,
        request: &RerankRequest,
        _observer: &dyn CallObserver,
    ) -> Result<Vec<RerankScore>, ModelError> {
        let message = format!("the provider of {} does not rank texts", request.model);
        Err(ModelError::new(ModelErrorKind::Rejected, message))
    }

    /// Fails if a call of this model would fail now without being sent, because every key is cooling down. With
    /// `can_wait` the call may first wait as long as a retry may.
    fn check_keys(&self, _model: &ModelId, _can_wait: bool) -> Result<(), ModelError> {
        Ok(())
    }
}

/// Request to rank texts by relevance to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerankRequest {
    /// The model.
    pub model: ModelId,
    /// The query.
    pub query: String,
    /// The texts.
    pub documents: Vec<String>,
}

impl RerankRequest {
    /// Body of the request in the format that Jina, Cohere, vLLM and `LiteLLM` share. The request is recorded in this
    /// format, whatever its provider sends.
    pub fn body(&self) -> RequestBody {
        let fields = [("model", self.model.name()), ("query", &self.query)];
        RequestBody {
            rest: fields.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect(),
            messages_key: "documents".to_owned(),
            messages: self.documents.iter().map(|text| Value::from(text.as_str())).collect(),
            ..RequestBody::default()
        }
    }
}

/// Body of a request as a provider receives it. Its lists are separate because they grow and are recorded item by item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestBody {
    /// All other fields, including the system prompt if the provider has a separate field for it.
    pub rest: JsonObject,
    /// Tools; the key is omitted if there are none.
    pub tools: ToolList,
    /// Key of the conversation: `messages`, `contents` or `input`, depending on the provider.
    pub messages_key: String,
    /// Messages of the conversation.
    pub messages: Vec<Value>,
}

impl RequestBody {
    /// Complete body as it is sent.
    pub fn to_text(&self) -> RequestBodyText {
        // Serialization fails only for keys that are not strings and for failing writers; neither occurs here.
        RequestBodyText(serde_json::to_string(self).unwrap_or_default())
    }

    /// Returns true for the keys of the lists, which `rest` must not contain.
    fn is_list_key(&self, key: &str) -> bool {
        key == self.messages_key || (key == TOOLS_KEY && !self.tools.is_empty())
    }

    /// Edits the fields other than the lists. Keys of the lists are removed again.
    pub fn edit_rest(&mut self, edit: impl FnOnce(&mut JsonObject)) {
        edit(&mut self.rest);
        let mut rest = std::mem::take(&mut self.rest);
        rest.retain(|key, _| !self.is_list_key(key));
        self.rest = rest;
    }
}

const TOOLS_KEY: &str = "tools";

/// Serializes the complete body. Tools come before the conversation, because providers cache prompts by prefix.
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

/// Text of a [`RequestBody`]. Can only be made from a body, so that only bodies are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestBodyText(String);

impl From<RequestBodyText> for String {
    fn from(text: RequestBodyText) -> Self {
        text.0
    }
}

/// Tools of a body. Serialized once, because the list is long and the same in most requests.
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
    /// Cached text; `None` if serialization failed.
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

/// Observer of one model call. A closure observes the retries alone.
pub trait CallObserver: Send + Sync {
    /// Called before each retry delay.
    fn on_retry(&self, error: &ModelError, delay: Duration);

    /// Called before each attempt by a provider with several keys.
    fn on_key(&self, _key: KeyPosition) {}

    /// Returns true if a provider with several keys may wait until one of them has cooled down. False if another model
    /// can answer at once.
    fn can_wait_for_keys(&self) -> bool {
        true
    }
}

impl<F: Fn(&ModelError, Duration) + Send + Sync> CallObserver for F {
    fn on_retry(&self, error: &ModelError, delay: Duration) {
        self(error, delay);
    }
}

/// Position of a key in the configured list; the key itself is never shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPosition {
    /// Number of the key, starting at 1.
    pub number: u32,
    /// Number of keys.
    pub count: u32,
}

impl std::fmt::Display for KeyPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.number, self.count)
    }
}

/// Events of a model, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// Failure of a model call. The message names provider and status, and contains neither the key nor the prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Kind of failure.
    pub kind: ModelErrorKind,
    /// Description of the failure.
    pub message: String,
    /// Earliest time at which the same call can succeed, if the keys of the provider are cooling down.
    pub retry_at: Option<Timestamp>,
}

impl ModelError {
    /// Creates a failure of this kind.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_at: None }
    }

    /// The same failure, with the earliest time at which the call can succeed.
    #[must_use]
    pub fn with_retry_at(self, retry_at: Timestamp) -> Self {
        Self { retry_at: Some(retry_at), ..self }
    }
}

/// Kind of a model failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CodedError)]
pub enum ModelErrorKind {
    /// No server answered at the address.
    #[code(ModelUnreachable)]
    Unreachable,
    /// The key is missing or was refused.
    #[code(ModelUnauthorized)]
    Unauthorized,
    /// No such provider or model.
    #[code(ModelUnknown)]
    UnknownModel,
    /// The provider limits the rate of requests.
    #[code(ModelRateLimited)]
    RateLimited,
    /// The request exceeds the context window of the model.
    #[code(ModelContextOverflow)]
    ContextOverflow,
    /// The provider refused the request.
    #[code(ModelRejected)]
    Rejected,
    /// The stream broke off or was malformed.
    #[code(ModelBroken)]
    Broken,
    /// Every key is cooling down. The message contains no text of the provider and no address.
    #[code(ModelExhausted)]
    Exhausted,
}

/// Message for a stream that ends without [`ModelEvent::Stop`].
const INCOMPLETE_STREAM_MESSAGE: &str = "the model's stream ended before it was complete";

/// Collects a stream to its end. A stream that ends without [`ModelEvent::Stop`] is an error, because the output may be
/// incomplete.
pub async fn collect_output(stream: ModelStream) -> Result<ModelOutput, ModelError> {
    try_collect_output(stream).await?.ok_or_else(|| ModelError::new(ModelErrorKind::Broken, INCOMPLETE_STREAM_MESSAGE))
}

/// Like [`collect_output`], for a model that was called through the run API.
pub async fn collect_api_output(events: ModelResultStream) -> Result<ModelOutput, ApiError> {
    try_collect_output(events)
        .await?
        .ok_or_else(|| ApiError::new(ApiErrorCode::RuntimeError, INCOMPLETE_STREAM_MESSAGE))
}

/// Collects the events of a model; `None` if they end without [`ModelEvent::Stop`].
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
