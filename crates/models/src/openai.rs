//! Any endpoint that speaks `OpenAI` chat.

mod answer;
mod calls;
mod endpoint;
mod failure;
mod redact;

use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelProvider, ModelStream};
use capstan_protocol::ModelRequest;
use genai::adapter::AdapterKind;
use genai::chat::{ChatOptions, ChatRequest};
use genai::resolver::{AuthData, Endpoint as GenaiEndpoint};
use genai::{Client, Headers, ModelIden, ServiceTarget, WebConfig};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::wire::{self, WireBody};
use endpoint::Endpoint;
use failure::Call;
use redact::Redactor;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A local model may read a long prompt for minutes before its first word.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(5);
/// genai reads meaning into names (a suffix `-high` becomes an option, `x::` a provider), so it does not get ours: the
/// real one is in the body.
const NEUTRAL_MODEL: &str = "capstan";

/// How to reach an endpoint.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The key, if the endpoint wants one.
    pub api_key: Option<SecretString>,
    /// The base URL, such as `http://127.0.0.1:1234/v1`; `OpenAI`'s own if it is not set.
    pub api_base: Option<String>,
}

/// The provider `openai`: `OpenAI` itself, and any server that speaks its chat protocol.
///
/// It sends exactly what [`wire::openai_body`] gives. The HTTP client is made on the first call, as it takes a while,
/// and used for all that follow. A request that is refused is an error of [`ModelProvider::stream`]; an answer that
/// breaks off is one of the stream.
///
/// ```
/// use capstan_hooks::contracts::ModelProvider;
/// use capstan_models::{OpenAi, openai::Settings};
///
/// let local = OpenAi::new(Settings { api_key: None, api_base: Some("http://127.0.0.1:1234/v1".to_owned()) });
/// assert_eq!(local.name(), "openai");
/// ```
#[derive(Debug)]
pub struct OpenAi {
    settings: Settings,
    client: OnceCell<Client>,
}

impl OpenAi {
    /// A provider with these settings. Nothing is connected to until the first call.
    pub fn new(settings: Settings) -> Self {
        Self { settings, client: OnceCell::new() }
    }

    fn key(&self) -> Option<SecretString> {
        let key = self.settings.api_key.as_ref().map(|key| key.expose_secret().trim());
        key.filter(|key| !key.is_empty()).map(|key| SecretString::from(key.to_owned()))
    }

    async fn client(&self) -> Result<&Client, genai::Error> {
        let web = WebConfig::default().with_connect_timeout(CONNECT_TIMEOUT);
        self.client.get_or_try_init(|| async { Client::builder().with_web_config(web).build() }).await
    }
}

#[async_trait]
impl ModelProvider for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let endpoint = Endpoint::parse(self.settings.api_base.as_deref())?;
        let key = self.key();
        if key.is_none() && endpoint.is_default {
            let message = "openai: there is no key; set CAPSTAN_API_KEY, or a base URL that needs none";
            return Err(ModelError::new(ModelErrorKind::Unauthorized, message));
        }
        let redactor = Redactor::new(key.as_ref(), request);
        let call = Call { model: request.model.name().to_owned(), origin: endpoint.origin(), redactor };

        let body = wire::openai_body(request);
        // The key comes with the body again; it only has to stand before the messages, where providers cache prompts.
        let tools = (!body.tools.is_empty()).then(Vec::new);
        let chat = ChatRequest { tools, ..ChatRequest::default() };
        let options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_tool_calls(true)
            .with_stream_header_timeout(SILENCE_TIMEOUT)
            .with_stream_read_timeout(SILENCE_TIMEOUT)
            .with_extra_body(body_fields(body, request.options.max_tokens));
        let target = target(&endpoint, key.as_ref());
        let sent = match self.client().await {
            Ok(client) => client.exec_chat_stream(target, chat, Some(&options)).await,
            Err(error) => Err(error),
        };
        answer::begin(sent.map_err(|error| call.failure(&error))?.stream, call).await
    }
}

/// What goes over the fields genai would write: genai takes such fields last and as they are.
fn body_fields(body: WireBody, max_tokens: Option<u32>) -> Value {
    let limit = limit_field(&body.model);
    let mut fields = json!({"model": body.model, "messages": body.messages});
    if !body.tools.is_empty() {
        fields["tools"] = Value::Array(body.tools);
    }
    if let Some(max_tokens) = max_tokens {
        fields[limit] = json!(max_tokens);
    }
    fields
}

/// `OpenAI`'s newer models know the limit by another name; other servers mostly know only the old one.
fn limit_field(model: &str) -> &'static str {
    let newer = ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|prefix| model.starts_with(prefix));
    if newer { "max_completion_tokens" } else { "max_tokens" }
}

/// URL and headers as they are sent: without a key there is no `Authorization` at all.
fn target(endpoint: &Endpoint, key: Option<&SecretString>) -> ServiceTarget {
    let bearer = key.map(|key| Headers::from(("Authorization", format!("Bearer {}", key.expose_secret()))));
    let auth = AuthData::RequestOverride { url: endpoint.chat.to_string(), headers: bearer.unwrap_or_default() };
    ServiceTarget {
        endpoint: GenaiEndpoint::from_owned(endpoint.chat.as_str()),
        auth,
        model: ModelIden::from_static(AdapterKind::OpenAI, NEUTRAL_MODEL),
    }
}
