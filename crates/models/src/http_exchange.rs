//! One request and its answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use capstan_hooks::contracts::{ModelError, ModelEvent, ModelStream};
use capstan_protocol::Clock;
use futures::StreamExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout, timeout_at};

use crate::endpoint::ModelEndpoint;
use crate::frame_decoder::{FrameDecoder, FrameError, FrameFormat, MAX_FRAME_BYTES};
use crate::provider_error::{CallContext, ProviderError, ResponseFault};
use crate::retry;
use crate::wire::{FrameProgress, ResponseReader};

/// How much of a refusal is read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// How long the end of a connection is waited for when the answer is whole: one that was read to its end is used again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// A request, to be sent as often as it takes.
pub(crate) struct HttpExchange<'a> {
    pub client: &'a Client,
    pub endpoint: &'a ModelEndpoint,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub timeout: Duration,
    pub clock: &'a Clock,
}

/// A request that failed before its first word.
pub(crate) struct FailedAttempt {
    pub error: ProviderError,
    /// After how long the provider wants to be asked again, if it says so.
    pub retry_after: Option<Duration>,
}

impl From<ProviderError> for FailedAttempt {
    fn from(failure: ProviderError) -> Self {
        Self { error: failure, retry_after: None }
    }
}

impl HttpExchange<'_> {
    /// Sends the request and waits for the first word, so that a refused request is an error and not a stream.
    pub(crate) async fn start(
        &self,
        framing: FrameFormat,
        reader: Box<dyn ResponseReader>,
        call: &CallContext,
    ) -> Result<ModelStream, FailedAttempt> {
        let request = self.client.post(self.endpoint.url.clone()).headers(self.headers.clone()).body(self.body.clone());
        let deadline = Instant::now() + self.timeout;
        let response = match timeout_at(deadline, request.send()).await {
            Err(_) => return Err(call.response_timeout(self.timeout).into()),
            Ok(Err(error)) => return Err(call.connection_failed(&error).into()),
            Ok(Ok(response)) => response,
        };
        if response.status().is_redirection() {
            return Err(call.redirected(response.status().as_u16(), redirect_target(&response).as_ref()).into());
        }
        if response.status() != reqwest::StatusCode::OK {
            return Err(read_error_response(response, deadline, call, self.clock).await);
        }
        let (call, timeout, may_be_page) = (call.clone(), self.timeout, is_html(&response));
        let mut answer = ResponseStream {
            response,
            decoder: FrameDecoder::new(framing),
            reader,
            context: call,
            timeout,
            deadline,
            has_output: false,
            may_be_html: may_be_page,
            bytes_without_events: 0,
            pending_events: VecDeque::new(),
            state: ResponseState::Open,
            deferred_error: None,
        };
        match answer.fill_pending_events().await {
            // Something was said, be it a part of a call or in the same bytes as the failure, so this is no refusal.
            Err(failure) if answer.has_output => answer.deferred_error = Some(failure.model_error),
            listened => listened?,
        }
        Ok(answer.into_events().boxed())
    }
}

/// Where a redirect leads, if it leads to a server.
fn redirect_target(response: &Response) -> Option<Url> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    response.url().join(location).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Whether an answer says that it is a page. Some servers say so of everything.
fn is_html(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}

/// Reads a status other than 200.
async fn read_error_response(
    mut response: Response,
    deadline: Instant,
    call: &CallContext,
    clock: &Clock,
) -> FailedAttempt {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BODY_BYTES
        && let Ok(Ok(Some(bytes))) = timeout_at(deadline, response.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    let body = String::from_utf8_lossy(&body);
    let now = jiff::Timestamp::from_microsecond(clock.now().as_micros()).unwrap_or(jiff::Timestamp::MAX);
    let asked = retry::parse_retry_advice(&headers, &body, now);
    let mut failure = call.error_status(status, &body, asked.after);
    if asked.should_retry == Some(false) {
        failure.retry = retry::RetryPolicy::Never;
    }
    FailedAttempt { error: failure, retry_after: asked.after }
}

/// An answer as it comes.
struct ResponseStream {
    response: Response,
    decoder: FrameDecoder,
    reader: Box<dyn ResponseReader>,
    context: CallContext,
    timeout: Duration,
    /// Until when the next word must be here.
    deadline: Instant,
    /// Whether a word has come, or the beginning of a call.
    has_output: bool,
    /// Whether it says that it is a page, and nothing came yet that shows whether it is.
    may_be_html: bool,
    /// How many bytes came that said nothing to be handed on, as those of a call that does not end.
    bytes_without_events: usize,
    /// What was read and not handed on yet.
    pending_events: VecDeque<ModelEvent>,
    state: ResponseState,
    /// Why it broke off, to be told after what was read.
    deferred_error: Option<ModelError>,
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseState {
    /// More may come.
    Open,
    /// It is whole.
    Complete,
}

impl ResponseStream {
    /// Reads on until there is something to hand on.
    async fn fill_pending_events(&mut self) -> Result<(), ProviderError> {
        self.bytes_without_events = 0;
        if self.has_output {
            // Whoever reads may have taken their time.
            self.deadline = Instant::now() + self.timeout;
        }
        while self.pending_events.is_empty() && self.state == ResponseState::Open {
            match timeout_at(self.deadline, self.response.chunk()).await {
                Err(_) if !self.has_output => return Err(self.context.response_timeout(self.timeout)),
                Err(_) => {
                    return Err(ProviderError {
                        model_error: self.context.stream_timeout(self.timeout),
                        retry: retry::RetryPolicy::Never,
                    });
                }
                Ok(Ok(Some(bytes))) => {
                    self.reject_html(&bytes)?;
                    let read = self.decoder.push(&bytes);
                    self.read_frames()?;
                    read.map_err(|damage| self.frame_error(damage))?;
                    self.bytes_without_events += bytes.len();
                    if self.bytes_without_events > MAX_FRAME_BYTES {
                        return Err(self.frame_error(FrameError::TooLong));
                    }
                }
                Ok(Ok(None)) => {
                    self.decoder.finish().map_err(|damage| self.frame_error(damage))?;
                    self.read_frames()?;
                    self.finish()?;
                }
                Ok(Err(error)) => {
                    // What was said is whole if the reader thinks so.
                    if self.finish().is_err() {
                        let lost = ProviderError {
                            model_error: self.context.response_fault(&CONNECTION_LOST).model_error,
                            retry: retry::RetryPolicy::Backoff,
                        };
                        return Err(if self.has_output { lost } else { self.context.connection_failed(&error) });
                    }
                }
            }
        }
        Ok(())
    }

    /// A page begins with a tag; no provider's protocol does.
    fn reject_html(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        if !self.may_be_html {
            return Ok(());
        }
        let Some(first) = bytes.trim_ascii_start().first() else { return Ok(()) };
        self.may_be_html = false;
        if *first == b'<' { Err(self.context.html_response()) } else { Ok(()) }
    }

    fn read_frames(&mut self) -> Result<(), ProviderError> {
        while let Some(frame) = self.decoder.next_frame() {
            if self.state == ResponseState::Complete {
                continue;
            }
            let mut events = Vec::new();
            let progress =
                self.reader.read(&frame, &mut events).map_err(|fault| self.context.response_fault(&fault))?;
            self.has_output |= !events.is_empty() || self.reader.has_started_call();
            self.pending_events.extend(events);
            match progress {
                FrameProgress::KeepAlive => {}
                FrameProgress::More => self.deadline = Instant::now() + self.timeout,
                FrameProgress::Complete => self.finish()?,
            }
        }
        Ok(())
    }

    /// Nothing more is to come.
    fn finish(&mut self) -> Result<(), ProviderError> {
        if self.state == ResponseState::Open {
            let last = self.reader.finish().map_err(|fault| self.context.response_fault(&fault))?;
            self.pending_events.extend(last);
            self.state = ResponseState::Complete;
        }
        Ok(())
    }

    fn frame_error(&self, damage: FrameError) -> ProviderError {
        self.context.response_fault(&match damage {
            FrameError::InvalidUtf8 => ResponseFault::Malformed("it sent something that is not text"),
            FrameError::TooLong => ResponseFault::Malformed("it sent something without an end"),
        })
    }

    fn into_events(mut self) -> impl futures::Stream<Item = Result<ModelEvent, ModelError>> + Send {
        async_stream::stream! {
            loop {
                while let Some(event) = self.pending_events.pop_front() {
                    if event == ModelEvent::Stop {
                        self.drain().await;
                    }
                    yield Ok(event);
                }
                if let Some(error) = self.deferred_error.take() {
                    yield Err(error);
                    return;
                }
                if self.state == ResponseState::Complete {
                    return;
                }
                if let Err(failure) = self.fill_pending_events().await {
                    // What came before the failure in the same bytes was said.
                    while let Some(event) = self.pending_events.pop_front() {
                        yield Ok(event);
                    }
                    yield Err(failure.model_error);
                    return;
                }
            }
        }
    }

    /// Reads the little that follows an answer, so that its connection can be used again.
    async fn drain(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        // A server that keeps the connection open loses it.
        let _kept_open = timeout(DRAIN_TIMEOUT, rest).await;
    }
}

const CONNECTION_LOST: ResponseFault = ResponseFault::Incomplete("the connection was lost");
