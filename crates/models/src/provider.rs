//! HTTP provider: one client for all wire protocols.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_hooks::contracts::{
    CallObserver, ModelError, ModelErrorKind, ModelProvider, ModelStream, RequestBody, RequestBodyText, RerankRequest,
    collect_output,
};
use capstan_hooks::visit_secret_texts;
use capstan_protocol::run_api::RerankScore;
use capstan_protocol::{Clock, FILE_LIMIT_BACKOFF, JsonObject, ModelId, ModelRequest, RetryBackoff};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::endpoint::ModelEndpoint;
use crate::error_redactor::ErrorRedactor;
use crate::frame_decoder::FrameFormat;
use crate::http_exchange::{FailedAttempt, HttpExchange};
use crate::key_pool::{KeyFault, KeyPool, KeySelection, PooledKey};
use crate::provider_error::{CallContext, ProviderError, keys_cooling_error};
use crate::retry::RetryPolicy;
use crate::wire::{EncodedToolsCache, ModelOrigin, ResponseReader};
use crate::{HttpClients, WireProtocol, retry, wire};

/// Shorter values from headers and URLs are not redacted: masking them would make an error unreadable.
const MIN_REDACTED_SECRET_CHARS: usize = 4;
/// Retry delays of at least this length are logged as a warning.
const WARN_RETRY_DELAY: Duration = Duration::from_secs(3);

/// Connection, credentials and request settings of a [`Provider`].
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// API keys, if the provider needs one, in the order in which they are used.
    pub api_keys: Vec<SecretString>,
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
    /// Clock for comparing dates sent by a provider, and for cool-downs of keys.
    pub clock: Clock,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
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
/// With several keys, the same body is sent at once with the next key if one is refused. A refused key cools down: no
/// request of any session uses it until then.
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
    keys: KeyPool,
    encoded_tools: EncodedToolsCache,
}

impl Provider {
    /// Creates a provider. No connection is opened before the first call, and an invalid base URL fails the calls.
    pub fn new(name: impl Into<String>, wire: WireProtocol, options: ProviderOptions, http: Arc<HttpClients>) -> Self {
        let name = name.into();
        let endpoint = ModelEndpoint::parse(&name, wire, options.api_base.as_deref());
        let keys = KeyPool::new(&options.api_keys, options.clock.clone());
        Self { name, wire, options, http, endpoint, keys, encoded_tools: EncodedToolsCache::default() }
    }

    /// Values that no error of a request may contain. All headers and URL parts count, since nothing marks which ones are
    /// secret; of the additional keys of the body, those that look like secrets.
    fn secrets(&self, endpoint: &ModelEndpoint, extra_body: &JsonObject) -> Vec<SecretString> {
        let headers = self.options.headers.iter().map(|(_, value)| value.expose_secret());
        // A scheme such as `Bearer` may precede the secret.
        let headers = headers.flat_map(|value| [Some(value), value.split_whitespace().next_back()]).flatten();
        let mut body_secrets = Vec::new();
        for keys in [&self.options.body, extra_body] {
            visit_secret_texts(&mut Value::Object(keys.clone()), &mut |text| body_secrets.push(text.clone()));
        }
        let all = headers.map(str::to_owned).chain(endpoint.secrets()).chain(body_secrets);
        let long = all.filter(|value| value.chars().count() >= MIN_REDACTED_SECRET_CHARS).map(SecretString::from);
        self.keys.keys().iter().cloned().chain(long).collect()
    }

    /// Settings and variables that hold the key, for error messages.
    fn key_setting_names(&self) -> String {
        match self.wire.key_variables().first() {
            Some(variable) if self.name == self.wire.name() => format!("CAPSTAN_API_KEY or {variable}"),
            _ => format!("models.{}.api_key", self.name),
        }
    }

    fn headers(&self, key: Option<&SecretString>, call: &CallContext) -> Result<HeaderMap, ProviderError> {
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

    /// Sends a prepared call, with retries and keys as the options say.
    async fn send(
        &self,
        model: &str,
        call: PreparedCall,
        make_reader: impl Fn() -> Box<dyn ResponseReader> + Send + Sync,
        observer: &dyn CallObserver,
    ) -> Result<ModelStream, ModelError> {
        let endpoint = self.endpoint.as_ref().map_err(Clone::clone)?;
        if self.keys.keys().is_empty() && endpoint.is_default && self.wire.needs_key() {
            let settings = self.key_setting_names();
            let message = format!("{}: no API key; set {settings}, or a base URL that needs none", self.name);
            return Err(ModelError::new(ModelErrorKind::Unauthorized, message));
        }
        let PreparedCall { url, body, extra_body, frame_format } = call;
        let body = Bytes::from(String::from(body));
        let call = CallContext {
            provider: self.name.clone(),
            model: model.to_owned(),
            origin: endpoint.origin(),
            key_setting_names: self.key_setting_names(),
            base_url_setting_names: format!("CAPSTAN_API_BASE or models.{}.api_base", self.name),
            redactor: ErrorRedactor { secrets: self.secrets(endpoint, &extra_body), request_body: body.clone() },
        };
        let client = self.http.client(endpoint.transport()).await.map_err(|_| call.client_setup_failed())?;
        let ProviderOptions { timeout, clock, .. } = &self.options;
        let exchange = HttpExchange { client, url, body, timeout: *timeout, clock };
        let mut retries = CallRetries::new(self, &call, observer);
        loop {
            let key = retries.wait_for_key(model).await?;
            if let Some(key) = key.as_ref().filter(|_| self.keys.has_several()) {
                observer.on_key(key.position);
            }
            let attempt = match self.headers(key.as_ref().map(|key| &key.secret), &call) {
                Ok(headers) => exchange.start(headers, frame_format, make_reader(), &call).await,
                Err(error) => Err(FailedAttempt::from(error)),
            };
            match attempt {
                Ok(stream) => {
                    if let Some(key) = &key {
                        self.keys.record_success(key, model);
                    }
                    return Ok(stream);
                }
                Err(failed) => match (&key, failed.error.key_fault) {
                    (Some(key), Some(fault)) => retries.handle_key_fault(model, key, fault, failed)?,
                    _ => retries.wait_for_retry(failed.error, failed.retry_after).await?,
                },
            }
        }
    }

    fn request_body(&self, request: &ModelRequest) -> RequestBody {
        let request = wire::sanitize_request(self.wire, &self.name, request);
        let mut body = self.wire.body_with_tools(
            &self.name,
            &request,
            self.encoded_tools.get_or_encode(self.wire, &request.tools),
        );
        body.edit_rest(|rest| {
            wire::add_body_keys(rest, &request.options.body);
            wire::merge_body(rest, &self.options.body);
        });
        body
    }
}

#[async_trait]
impl ModelProvider for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        self.send_recorded(request, None, &|_: &ModelError, _: Duration| {}).await
    }

    async fn send_recorded(
        &self,
        request: &ModelRequest,
        body: Option<RequestBodyText>,
        observer: &dyn CallObserver,
    ) -> Result<ModelStream, ModelError> {
        let model = request.model.name();
        let body = body.unwrap_or_else(|| self.request_body(request).to_text());
        let url = self.endpoint.as_ref().map_err(Clone::clone)?.url(model);
        let origin = ModelOrigin::new(&self.name, model);
        let extra_body = request.options.body.clone();
        let call = PreparedCall { url, body, extra_body, frame_format: self.wire.frame_format() };
        self.send(model, call, || self.wire.reader(origin.clone()), observer).await
    }

    fn can_rerank(&self) -> bool {
        self.endpoint.as_ref().is_ok_and(|endpoint| endpoint.rerank_url().is_some())
    }

    async fn rerank(
        &self,
        request: &RerankRequest,
        observer: &dyn CallObserver,
    ) -> Result<Vec<RerankScore>, ModelError> {
        let Some(url) = self.endpoint.as_ref().map_err(Clone::clone)?.rerank_url() else {
            let message = format!("{}: the provider does not rank texts", self.name);
            return Err(ModelError::new(ModelErrorKind::Rejected, message));
        };
        let (body, extra_body) = (request.body().to_text(), JsonObject::new());
        let call = PreparedCall { url, body, extra_body, frame_format: FrameFormat::JsonLines };
        let reader = || Box::new(wire::RerankReader::default()) as Box<dyn ResponseReader>;
        let response = self.send(request.model.name(), call, reader, observer).await?;
        wire::parse_scores(&self.name, &collect_output(response).await?.text)
    }

    fn check_keys(&self, model: &ModelId, can_wait: bool) -> Result<(), ModelError> {
        match self.keys.select(model.name()) {
            KeySelection::Keyless | KeySelection::Free(_) => Ok(()),
            KeySelection::Cooling(cooldown) => {
                let delay = retry::retry_delay(RetryPolicy::Backoff, 0, self.options.retries, Some(cooldown.wait), 0.0);
                let can_wait = can_wait && delay.is_some();
                if can_wait { Ok(()) } else { Err(keys_cooling_error(&self.name, &cooldown)) }
            }
        }
    }

    fn request_body(&self, request: &ModelRequest) -> Option<RequestBody> {
        Some(self.request_body(request))
    }
}

/// A call as it is sent, with any key and any number of times.
struct PreparedCall {
    url: Url,
    body: RequestBodyText,
    /// Keys that the request adds to the body. Some may be secret.
    extra_body: JsonObject,
    frame_format: FrameFormat,
}

/// Retries of one call, and its choice of keys.
struct CallRetries<'a> {
    provider: &'a Provider,
    call: &'a CallContext,
    observer: &'a dyn CallObserver,
    /// Retries made so far.
    tries: u32,
    /// Waits for a free file descriptor.
    file_waits: u32,
    /// Refusal of a key in the last attempt.
    refusal: Option<FailedAttempt>,
    /// Numbers of the keys that were refused since the last delay. Each is tried once before the next one.
    refused_keys: Vec<u32>,
}

impl<'a> CallRetries<'a> {
    fn new(provider: &'a Provider, call: &'a CallContext, observer: &'a dyn CallObserver) -> Self {
        Self { provider, call, observer, tries: 0, file_waits: 0, refusal: None, refused_keys: Vec::new() }
    }

    /// Key for the next attempt; `None` for a provider without keys. If every key is cooling down, waits for the first
    /// one, which counts as a retry, or fails if that would take too long.
    async fn wait_for_key(&mut self, model: &str) -> Result<Option<PooledKey>, ModelError> {
        let keys = &self.provider.keys;
        let mut waited_until = None;
        loop {
            match keys.select_after(model, &self.refused_keys) {
                KeySelection::Keyless => return Ok(None),
                KeySelection::Free(key) => {
                    // A cool-down may end while the other keys are tried.
                    if self.refused_keys.contains(&key.position.number)
                        && let Some(FailedAttempt { error, retry_after }) = self.refusal.take()
                    {
                        self.wait_for_retry(error, retry_after).await?;
                    }
                    return Ok(Some(key));
                }
                // The wait is over, whatever an injected clock says. Another cool-down may have begun meanwhile.
                KeySelection::Cooling(cooldown) if waited_until >= Some(cooldown.until) => {
                    return Ok(Some(cooldown.key));
                }
                KeySelection::Cooling(cooldown) => {
                    let refusal = self.refusal.take().filter(|_| !keys.has_several());
                    let error = match refusal.map(|refusal| refusal.error) {
                        Some(error) => {
                            ProviderError { model_error: error.model_error.with_retry_at(cooldown.until), ..error }
                        }
                        None => ProviderError::new(self.call.keys_cooling(&cooldown), RetryPolicy::Backoff),
                    };
                    self.wait_for_retry(error, Some(cooldown.wait)).await?;
                    waited_until = Some(cooldown.until);
                }
            }
        }
    }

    /// Cools down a key that was refused, before the call is sent with another key or waits for one. Fails if every key
    /// is cooling down and another model can answer.
    fn handle_key_fault(
        &mut self,
        model: &str,
        key: &PooledKey,
        fault: KeyFault,
        failed: FailedAttempt,
    ) -> Result<(), ModelError> {
        let keys = &self.provider.keys;
        keys.record_fault(key, model, fault, failed.retry_after, RetryBackoff::random_fraction());
        self.refused_keys.push(key.position.number);
        if keys.has_several() {
            tracing::warn!("{}; key {} cools down", failed.error.model_error, key.position);
            if let KeySelection::Cooling(cooldown) = keys.select(model)
                && !self.observer.can_wait_for_keys()
            {
                return Err(self.call.keys_cooling(&cooldown));
            }
        }
        self.refusal = Some(failed);
        Ok(())
    }

    /// Waits before the next retry. Fails with the error if there is none.
    async fn wait_for_retry(&mut self, error: ProviderError, requested: Option<Duration>) -> Result<(), ModelError> {
        let ProviderError { model_error: error, retry: policy, .. } = error;
        if policy == RetryPolicy::UntilFilesFree {
            // Not a retry of the provider, which was not asked: the run ends the wait at its deadline.
            self.file_waits += 1;
            let delay = FILE_LIMIT_BACKOFF.delay_after(self.file_waits);
            if self.file_waits == 1 {
                tracing::warn!("{error}; waiting for other turns");
                self.observer.on_retry(&error, delay);
            }
            tokio::time::sleep(delay).await;
            return Ok(());
        }
        let (max_tries, jitter) = (self.provider.options.retries, RetryBackoff::random_fraction());
        let Some(delay) = retry::retry_delay(policy, self.tries, max_tries, requested, jitter) else {
            return Err(error);
        };
        let seconds = delay.as_secs_f64();
        if delay >= WARN_RETRY_DELAY {
            tracing::warn!("{error}; retrying in {seconds:.0} seconds");
        } else {
            tracing::info!("{error}; retrying in {seconds:.1} seconds");
        }
        self.observer.on_retry(&error, delay);
        tokio::time::sleep(delay).await;
        self.tries += 1;
        self.refused_keys.clear();
        Ok(())
    }
}
