//! HTTP provider: one client for all wire protocols.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_hooks::contracts::{
    ModelError, ModelErrorKind, ModelProvider, ModelStream, RequestBody, RequestBodyText, RetryObserver,
};
use capstan_protocol::{Clock, FILE_LIMIT_BACKOFF, JsonObject, ModelRequest, RetryBackoff};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::endpoint::ModelEndpoint;
use crate::error_redactor::ErrorRedactor;
use crate::http_exchange::HttpExchange;
use crate::provider_error::CallContext;
use crate::retry::RetryPolicy;
use crate::wire::{EncodedToolsCache, ModelOrigin};
use crate::{HttpClients, WireProtocol, retry, wire};

/// Shorter values from headers and URLs are not redacted: masking them would make an error unreadable.
const MIN_REDACTED_SECRET_CHARS: usize = 4;
/// Retry delays of at least this length are logged as a warning.
const WARN_RETRY_DELAY: Duration = Duration::from_secs(3);

/// Connection, credentials and request settings of a [`Provider`].
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// API key, if the provider needs one.
    pub api_key: Option<SecretString>,
    /// Base URL, such as `http://127.0.0.1:1234/v1`; `None` selects the provider's own.
    pub api_base: Option<String>,
    /// Headers sent with every request.
    pub headers: Vec<(String, SecretString)>,
    /// Keys merged into every request body; they override keys of the wire protocol.
    pub body: JsonObject,
    /// Maximum time until the first output, and between two outputs.
    pub timeout: Duration,
    /// Maximum number of retries after a failure before the first output.
    pub retries: u32,
    /// Clock for comparing dates sent by a provider.
    pub clock: Clock,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self {
            api_key: None,
            api_base: None,
            headers: Vec::new(),
            body: JsonObject::new(),
            // A local model may process a long prompt for minutes before its first token.
            timeout: Duration::from_mins(5),
            retries: 3,
            clock: Clock::default(),
        }
    }
}

/// Model provider over HTTP: a [`WireProtocol`] with a name and options.
///
/// The body it sends is exactly the one returned by [`ModelProvider::request_body`]. A failure before the first output
/// is an error of [`ModelProvider::stream`], after retries where they may help. A failure after the first output is an
/// error of the stream and is never retried.
///
/// ```
/// use std::sync::Arc;
///
/// use capstan_hooks::contracts::ModelProvider;
/// use capstan_models::{HttpClients, Provider, ProviderOptions, WireProtocol};
///
/// let api_base = Some("http://127.0.0.1:1234/v1".to_owned());
/// let http = Arc::new(HttpClients::new());
/// let options = ProviderOptions { api_base, ..ProviderOptions::default() };
/// let local = Provider::new("local", WireProtocol::OpenAi, options, http);
/// assert_eq!(local.name(), "local");
/// ```
#[derive(Debug)]
pub struct Provider {
    name: String,
    wire: WireProtocol,
    options: ProviderOptions,
    http: Arc<HttpClients>,
    /// Endpoint, or the error with which every call fails because the base URL is invalid.
    endpoint: Result<ModelEndpoint, ModelError>,
    encoded_tools: EncodedToolsCache,
}

impl Provider {
    /// Creates a provider. No connection is opened before the first call, and an invalid base URL fails the calls.
    pub fn new(name: impl Into<String>, wire: WireProtocol, options: ProviderOptions, http: Arc<HttpClients>) -> Self {
        let name = name.into();
        let endpoint = ModelEndpoint::parse(&name, wire, options.api_base.as_deref());
        Self { name, wire, options, http, endpoint, encoded_tools: EncodedToolsCache::default() }
    }

    fn trimmed_key(&self) -> Option<SecretString> {
        let key = self.options.api_key.as_ref().map(|key| key.expose_secret().trim());
        key.filter(|key| !key.is_empty()).map(|key| SecretString::from(key.to_owned()))
    }

    /// Values that no error may contain. All headers and URL parts count, since nothing marks which ones are secret.
    fn secrets(&self, key: Option<&SecretString>, endpoint: &ModelEndpoint) -> Vec<SecretString> {
        let headers = self.options.headers.iter().map(|(_, value)| value.expose_secret());
        // A scheme such as `Bearer` may precede the secret.
        let headers = headers.flat_map(|value| [Some(value), value.split_whitespace().next_back()]).flatten();
        let all = headers.map(str::to_owned).chain(endpoint.secrets());
        let long = all.filter(|value| value.chars().count() >= MIN_REDACTED_SECRET_CHARS).map(SecretString::from);
        key.cloned().into_iter().chain(long).collect()
    }

    /// Settings and variables that hold the key, for error messages.
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
            if let Some(present) = headers.get(&name).filter(|_| name.eq_ignore_ascii_case(wire::BETA_HEADER)) {
                // The beta names of the user are added to those of the wire protocol.
                value = format!("{},{}", present.to_str().unwrap_or_default(), value.expose_secret()).into();
            }
            let (Ok(header_name), Ok(mut value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_str(value.expose_secret()))
            else {
                let is_key = names.contains(&name.as_str());
                return Err(if is_key { call.invalid_key() } else { call.invalid_header(&name) });
            };
            value.set_sensitive(true);
            headers.insert(header_name, value);
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
        on_retry: RetryObserver<'_>,
    ) -> Result<ModelStream, ModelError> {
        let model = request.model.name();
        let endpoint = self.endpoint.as_ref().map_err(Clone::clone)?;
        let key = self.trimmed_key();
        if key.is_none() && endpoint.is_default && self.wire.needs_key() {
            let settings = self.key_setting_names();
            let message = format!("{}: no API key; set {settings}, or a base URL that needs none", self.name);
            return Err(ModelError::new(ModelErrorKind::Unauthorized, message));
        }
        let body = Bytes::from(String::from(body.unwrap_or_else(|| self.request_body(request).to_text())));
        let call = CallContext {
            provider: self.name.clone(),
            model: model.to_owned(),
            origin: endpoint.origin(),
            key_setting_names: self.key_setting_names(),
            base_url_setting_names: format!("CAPSTAN_API_BASE or models.{}.api_base", self.name),
            redactor: ErrorRedactor { secrets: self.secrets(key.as_ref(), endpoint), request_body: body.clone() },
        };
        let headers = self.headers(key.as_ref(), &call)?;
        let client = self.http.client(endpoint.transport()).await.map_err(|_| call.client_setup_failed())?;
        let ProviderOptions { timeout, clock, .. } = &self.options;
        let exchange = HttpExchange { client, url: endpoint.url(model), headers, body, timeout: *timeout, clock };
        let (mut tries, mut file_waits) = (0, 0);
        loop {
            let reader = self.wire.reader(ModelOrigin::new(&self.name, model));
            let failed = match exchange.start(self.wire.frame_format(), reader, &call).await {
                Ok(stream) => return Ok(stream),
                Err(failed) => failed,
            };
            let (policy, requested) = (failed.error.retry, failed.retry_after);
            if policy == RetryPolicy::UntilFilesFree {
                // Not a retry of the provider, which was not asked: the run ends the wait at its deadline.
                file_waits += 1;
                let (error, delay) = (&failed.error.model_error, FILE_LIMIT_BACKOFF.delay_after(file_waits));
                if file_waits == 1 {
                    tracing::warn!("{error}; waiting for other turns");
                    on_retry(error, delay);
                }
                tokio::time::sleep(delay).await;
                continue;
            }
            let Some(delay) =
                retry::retry_delay(policy, tries, self.options.retries, requested, RetryBackoff::random_fraction())
            else {
                return Err(failed.error.model_error);
            };
            let (error, seconds) = (&failed.error.model_error, delay.as_secs_f64());
            if delay >= WARN_RETRY_DELAY {
                tracing::warn!("{error}; retrying in {seconds:.0} seconds");
            } else {
                tracing::info!("{error}; retrying in {seconds:.1} seconds");
            }
            on_retry(error, delay);
            tokio::time::sleep(delay).await;
            tries += 1;
        }
    }

    fn request_body(&self, request: &ModelRequest) -> Option<RequestBody> {
        Some(self.request_body(request))
    }
}
