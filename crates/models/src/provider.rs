//! One way to speak to every provider.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_hooks::contracts::{
    ModelError, ModelErrorKind, ModelProvider, ModelStream, RequestBody, RequestBodyText, RetryObserver,
};
use capstan_protocol::{Clock, JsonObject, ModelRequest, RetryBackoff};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::endpoint::ModelEndpoint;
use crate::error_redactor::ErrorRedactor;
use crate::http_exchange::HttpExchange;
use crate::provider_error::CallContext;
use crate::wire::{EncodedToolsCache, ModelOrigin};
use crate::{HttpClients, WireProtocol, retry, wire};

/// Whatever is shorter, beside the key, is no secret, and to mask it would leave nothing of an error.
const MIN_REDACTED_SECRET_CHARS: usize = 4;
/// A wait that long is worth a line in the log.
const WARN_RETRY_DELAY: Duration = Duration::from_secs(3);

/// How to reach a provider, and what to send it beside what is asked.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// The key, if the provider wants one.
    pub api_key: Option<SecretString>,
    /// The base URL, such as `http://127.0.0.1:1234/v1`; the provider's own if it is not set.
    pub api_base: Option<String>,
    /// Headers that are sent with every request.
    pub headers: Vec<(String, SecretString)>,
    /// Keys of the body that are sent with every request, over what the wire sends.
    pub body: JsonObject,
    /// How long to wait for the first word, and then for each next one.
    pub timeout: Duration,
    /// How often a request is sent again that failed before its first word.
    pub retries: u32,
    /// The clock that dates of a provider are compared with.
    pub clock: Clock,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self {
            api_key: None,
            api_base: None,
            headers: Vec::new(),
            body: JsonObject::new(),
            // A local model may read a long prompt for minutes before its first word.
            timeout: Duration::from_mins(5),
            retries: 3,
            clock: Clock::default(),
        }
    }
}

/// A provider of models: a [`Wire`] under a name, with its settings.
///
/// It sends exactly what [`ModelProvider::body`] gives. A request that is refused, or fails before its first word, is an
/// error of [`ModelProvider::stream`], after it was tried again where that may help; an answer that breaks off later is
/// an error of the stream, and never asked for again.
///
/// ```
/// use std::sync::Arc;
///
/// use capstan_hooks::contracts::ModelProvider;
/// use capstan_models::{Http, Provider, Settings, Wire};
///
/// let api_base = Some("http://127.0.0.1:1234/v1".to_owned());
/// let http = Arc::new(Http::new());
/// let local = Provider::new("local", Wire::OpenAi, Settings { api_base, ..Settings::default() }, http);
/// assert_eq!(local.name(), "local");
/// ```
#[derive(Debug)]
pub struct Provider {
    name: String,
    wire: WireProtocol,
    options: ProviderOptions,
    http: Arc<HttpClients>,
    encoded_tools: EncodedToolsCache,
}

impl Provider {
    /// A provider of this name. Nothing is connected to until the first call.
    pub fn new(name: impl Into<String>, wire: WireProtocol, settings: ProviderOptions, http: Arc<HttpClients>) -> Self {
        Self { name: name.into(), wire, options: settings, http, encoded_tools: EncodedToolsCache::default() }
    }

    fn trimmed_key(&self) -> Option<SecretString> {
        let key = self.options.api_key.as_ref().map(|key| key.expose_secret().trim());
        key.filter(|key| !key.is_empty()).map(|key| SecretString::from(key.to_owned()))
    }

    /// What no error may repeat. Which header or part of an address holds a secret nobody says, so all of them count.
    fn secrets(&self, key: Option<&SecretString>, endpoint: &ModelEndpoint) -> Vec<SecretString> {
        let headers = self.options.headers.iter().map(|(_, value)| value.expose_secret());
        // Before a secret may stand what kind of secret it is, such as `Bearer`.
        let headers = headers.flat_map(|value| [Some(value), value.split_whitespace().next_back()]).flatten();
        let all = headers.map(str::to_owned).chain(endpoint.secrets());
        let long = all.filter(|value| value.chars().count() >= MIN_REDACTED_SECRET_CHARS).map(SecretString::from);
        key.cloned().into_iter().chain(long).collect()
    }

    /// Where people set the key.
    fn key_setting_names(&self) -> String {
        match self.wire.key_variables().first() {
            Some(variable) if self.name == self.wire.name() => format!("CAPSTAN_API_KEY or {variable}"),
            _ => format!("models.{}.api_key", self.name),
        }
    }

    fn headers(&self, key: Option<&SecretString>, call: &CallContext) -> Result<HeaderMap, ModelError> {
        let own = self.wire.headers(key, &call.model);
        let names: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let mut headers = HeaderMap::new();
        for (name, mut value) in own.chain(self.options.headers.iter().cloned()) {
            if let Some(there) = headers.get(&name).filter(|_| name.eq_ignore_ascii_case(wire::BETA_HEADER)) {
                // What the user asks for is asked for beside it.
                value = format!("{},{}", there.to_str().unwrap_or_default(), value.expose_secret()).into();
            }
            let (Ok(known), Ok(mut value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value.expose_secret()))
            else {
                let is_key = names.contains(&name.as_str());
                return Err(if is_key { call.invalid_key() } else { call.invalid_header(&name) });
            };
            value.set_sensitive(true);
            headers.insert(known, value);
        }
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        Ok(headers)
    }

    fn request_body(&self, request: &ModelRequest) -> RequestBody {
        let request = wire::sanitize_request(self.wire, &self.name, request);
        let mut body = self.wire.body_with_tools(
            &self.name,
            &request,
            self.encoded_tools.get_or_encode(self.wire, &request.tools),
        );
        body.edit_rest(|rest| wire::merge_body(rest, &self.options.body));
        body
    }
}

#[async_trait]
impl ModelProvider for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        self.send_recorded(request, None, &|_, _| {}).await
    }

    async fn send_recorded(
        &self,
        request: &ModelRequest,
        body: Option<RequestBodyText>,
        waits: RetryObserver<'_>,
    ) -> Result<ModelStream, ModelError> {
        let model = request.model.name();
        let endpoint = ModelEndpoint::parse(&self.name, self.wire, self.options.api_base.as_deref(), model)?;
        let key = self.trimmed_key();
        if key.is_none() && endpoint.is_default && self.wire.needs_key() {
            let where_to = self.key_setting_names();
            let message = format!("{}: there is no key; set {where_to}, or a base URL that needs none", self.name);
            return Err(ModelError::new(ModelErrorKind::Unauthorized, message));
        }
        let body = Bytes::from(String::from(body.unwrap_or_else(|| self.request_body(request).to_text())));
        let call = CallContext {
            provider: self.name.clone(),
            model: model.to_owned(),
            origin: endpoint.origin(),
            key_setting_names: self.key_setting_names(),
            base_url_setting_names: format!("CAPSTAN_API_BASE or models.{}.api_base", self.name),
            redactor: ErrorRedactor { secrets: self.secrets(key.as_ref(), &endpoint), request_body: body.clone() },
        };
        let headers = self.headers(key.as_ref(), &call)?;
        let client = self.http.client(endpoint.transport()).await.map_err(|_| call.client_setup_failed())?;
        let ProviderOptions { timeout, clock, .. } = &self.options;
        let exchange = HttpExchange { client, endpoint: &endpoint, headers, body, timeout: *timeout, clock };
        let mut tries = 0;
        loop {
            let reader = self.wire.reader(ModelOrigin::new(&self.name, model));
            let refused = match exchange.start(self.wire.frame_format(), reader, &call).await {
                Ok(stream) => return Ok(stream),
                Err(refused) => refused,
            };
            let (again, asked) = (refused.error.retry, refused.retry_after);
            let Some(wait) =
                retry::retry_delay(again, tries, self.options.retries, asked, RetryBackoff::random_fraction())
            else {
                return Err(refused.error.model_error);
            };
            let (error, seconds) = (&refused.error.model_error, wait.as_secs_f64());
            if wait >= WARN_RETRY_DELAY {
                tracing::warn!("{error}; trying again in {seconds:.0} seconds");
            } else {
                tracing::info!("{error}; trying again in {seconds:.1} seconds");
            }
            waits(error, wait);
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }

    fn request_body(&self, request: &ModelRequest) -> Option<RequestBody> {
        Some(self.request_body(request))
    }
}
