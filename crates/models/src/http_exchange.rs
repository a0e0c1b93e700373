//! One HTTP request and its streamed response.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use capstan_hooks::contracts::{ModelError, ModelEvent, ModelStream};
use capstan_protocol::Clock;
use futures::StreamExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout, timeout_at};

use crate::frame_decoder::{FrameDecoder, FrameError, FrameFormat, MAX_FRAME_BYTES};
use crate::json_weight;
use crate::provider_error::{CallContext, ProviderError, ResponseFault};
use crate::retry;
use crate::wire::{FrameProgress, MAX_HELD_BYTES, MAX_REPLY_CALLS, ResponseReader};

/// Maximum number of bytes read from the body of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Maximum wait for the end of the connection after a complete response. Only a fully read connection is reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum wait for token counts after a response named the reason for its end. Some servers leave the connection open.
const USAGE_WAIT: Duration = Duration::from_secs(1);

/// Maximum memory of the parsed arguments of a tool call.
const MAX_ARGUMENTS_MEMORY_BYTES: usize = 64 << 20;

/// Prepared request that can be sent any number of times.
pub(crate) struct HttpExchange<'a> {
    pub client: &'a Client,
    pub url: Url,
    pub body: Bytes,
    pub timeout: Duration,
    pub clock: &'a Clock,
}

/// Attempt that failed before the first output.
pub(crate) struct FailedAttempt {
    pub error: ProviderError,
    /// Retry delay requested by the provider.
    pub retry_after: Option<Duration>,
}

impl From<ProviderError> for FailedAttempt {
    fn from(error: ProviderError) -> Self {
        Self { error, retry_after: None }
    }
}

impl HttpExchange<'_> {
    /// Sends the request and waits for the first output, so that a rejected request is an error and not a stream.
    pub(crate) async fn start(
        &self,
        headers: HeaderMap,
        frame_format: FrameFormat,
        reader: Box<dyn ResponseReader>,
        call: &CallContext,
    ) -> Result<ModelStream, FailedAttempt> {
        let request = self.client.post(self.url.clone()).headers(headers).body(self.body.clone());
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
        let mut stream = ResponseStream {
            may_be_html: is_html(&response),
            response,
            decoder: FrameDecoder::new(frame_format),
            reader,
            context: call.clone(),
            timeout: self.timeout,
            deadline,
            has_output: false,
            bytes_without_events: 0,
            pending_events: VecDeque::new(),
            state: ResponseState::Open,
            deferred_error: None,
        };
        match stream.fill_pending_events().await {
            // The model has started to answer, with part of a call or in the same bytes as the error, so a retry could
            // produce output twice.
            Err(error) if stream.has_output => stream.deferred_error = Some(error.model_error),
            filled => filled?,
        }
        Ok(stream.into_events().boxed())
    }
}

/// Target of a redirect, if it is an HTTP URL.
fn redirect_target(response: &Response) -> Option<Url> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    response.url().join(location).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// True if the response declares itself an HTML page. Some servers declare everything as HTML.
fn is_html(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}

/// Reads a response with a status other than 200.
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
    let advice = retry::parse_retry_advice(&headers, &body, now);
    let mut error = call.error_status(status, &body, advice.after);
    if advice.should_retry == Some(false) {
        error.retry = retry::RetryPolicy::Never;
    }
    FailedAttempt { error, retry_after: advice.after }
}

/// Response with status 200 whose body is being read.
struct ResponseStream {
    response: Response,
    decoder: FrameDecoder,
    reader: Box<dyn ResponseReader>,
    context: CallContext,
    timeout: Duration,
    /// Deadline for the next output.
    deadline: Instant,
    /// True once text or the start of a tool call was received.
    has_output: bool,
    /// True if the response declares itself HTML and no byte has confirmed or refuted that yet.
    may_be_html: bool,
    /// Bytes read since the last event, for detecting a tool call that never ends.
    bytes_without_events: usize,
    /// Decoded events that were not yielded yet.
    pending_events: VecDeque<ModelEvent>,
    state: ResponseState,
    /// Error to yield after the pending events.
    deferred_error: Option<ModelError>,
}

/// State of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseState {
    /// More frames may follow.
    Open,
    /// The last frame was read.
    Complete,
}

impl ResponseStream {
    /// Reads until an event is pending or the response is complete.
    async fn fill_pending_events(&mut self) -> Result<(), ProviderError> {
        self.bytes_without_events = 0;
        if self.has_output && !self.reader.has_stop_reason() {
            // The consumer of the stream may have paused.
            self.deadline = Instant::now() + self.timeout;
        }
        while self.pending_events.is_empty() && self.state == ResponseState::Open {
            match timeout_at(self.deadline, self.response.chunk()).await {
                Err(_) if self.reader.has_stop_reason() => self.finish()?,
                Err(_) if !self.has_output => return Err(self.context.response_timeout(self.timeout)),
                Err(_) => {
                    let error = self.context.stream_timeout(self.timeout);
                    return Err(ProviderError::new(error, retry::RetryPolicy::Never));
                }
                Ok(Ok(Some(bytes))) => {
                    self.reject_html(&bytes)?;
                    let pushed = self.decoder.push(&bytes);
                    self.read_frames()?;
                    pushed.map_err(|error| self.frame_error(error))?;
                    self.bytes_without_events += bytes.len();
                    if self.bytes_without_events > MAX_FRAME_BYTES {
                        return Err(self.frame_error(FrameError::TooLong));
                    }
                }
                Ok(Ok(None)) => {
                    self.decoder.finish().map_err(|error| self.frame_error(error))?;
                    self.read_frames()?;
                    self.finish()?;
                }
                Ok(Err(error)) => {
                    // A response that its reader considers complete is not affected by a lost connection.
                    if self.finish().is_err() {
                        let lost = ProviderError::new(
                            self.context.response_fault(&CONNECTION_LOST).model_error,
                            retry::RetryPolicy::Backoff,
                        );
                        return Err(if self.has_output { lost } else { self.context.connection_failed(&error) });
                    }
                }
            }
        }
        Ok(())
    }

    /// Fails if the body starts like HTML: with a tag, which no provider protocol uses.
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
            self.has_output |= !events.is_empty() || self.reader.call_count() > 0;
            self.pending_events.extend(events);
            if self.reader.call_count() > MAX_REPLY_CALLS {
                return Err(self.context.response_fault(&ResponseFault::Malformed("it has more than 1000 tool calls")));
            }
            if self.reader.held_bytes() > MAX_HELD_BYTES {
                let reason = "the total of its tool calls and reasoning exceeds the size limit";
                return Err(self.context.response_fault(&ResponseFault::Malformed(reason)));
            }
            match progress {
                FrameProgress::KeepAlive => {}
                FrameProgress::More if self.reader.has_stop_reason() => {
                    self.deadline = self.deadline.min(Instant::now() + USAGE_WAIT);
                }
                FrameProgress::More => self.deadline = Instant::now() + self.timeout,
                FrameProgress::Complete => self.finish()?,
            }
        }
        Ok(())
    }

    /// Handles the end of the response.
    fn finish(&mut self) -> Result<(), ProviderError> {
        if self.state == ResponseState::Open {
            let last = self.reader.finish().map_err(|fault| self.context.response_fault(&fault))?;
            if last.iter().any(has_heavy_arguments) {
                let reason = "a tool call has too many values";
                return Err(self.context.response_fault(&ResponseFault::Malformed(reason)));
            }
            self.pending_events.extend(last);
            self.state = ResponseState::Complete;
        }
        Ok(())
    }

    fn frame_error(&self, error: FrameError) -> ProviderError {
        self.context.response_fault(&match error {
            FrameError::InvalidUtf8 => ResponseFault::Malformed("data is not UTF-8 text"),
            FrameError::TooLong => ResponseFault::Malformed("an event exceeds the size limit"),
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
                if let Err(error) = self.fill_pending_events().await {
                    // Events decoded from the same bytes before the error are still valid.
                    while let Some(event) = self.pending_events.pop_front() {
                        yield Ok(event);
                    }
                    yield Err(error.model_error);
                    return;
                }
            }
        }
    }

    /// Reads the remaining bytes after a complete response, so that the connection can be reused.
    async fn drain(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        // A server that leaves the response open loses the connection.
        let _drained = timeout(DRAIN_TIMEOUT, rest).await;
    }
}

/// Returns true for a tool call whose arguments would take too much memory when they are parsed.
fn has_heavy_arguments(event: &ModelEvent) -> bool {
    let ModelEvent::ToolCall(call) = event else { return false };
    json_weight::exceeds_memory(&call.function.arguments, MAX_ARGUMENTS_MEMORY_BYTES)
}

const CONNECTION_LOST: ResponseFault = ResponseFault::Incomplete("the connection was lost");
