//! Channel for scripts and supervisors: one JSON object per line, requests on standard input, responses on standard
//! output.
//!
//! # Threads
//!
//! Lines are read and written by dedicated threads. A terminal or pipe that blocks therefore delays nothing else, and the
//! process can exit while one of them is still blocked.

mod line_reader;
mod output_line;
mod output_queue;
mod pending_request;
mod request;
mod request_loop;

use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, ChannelReply, Gateway, IntakeError};
use capstan_protocol::{ChannelName, OutboundMessage, StreamEvent};
use tokio_util::sync::CancellationToken;

use output_queue::{OutputClosed, OutputPeer, OutputQueue};
use pending_request::PendingRequest;
use request_loop::RequestLoop;

/// Once the channel is stopped, an output that makes no progress for this long counts as closed.
const STALLED_OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of the channel.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Maximum length of an input line in bytes. A longer line is rejected with `line-too-long`.
    pub max_line_bytes: usize,
}

/// Input and output of the channel.
pub struct StdioStreams {
    /// Request lines.
    pub input: Box<dyn Read + Send>,
    /// Response lines.
    pub output: Box<dyn Write + Send>,
}

impl StdioStreams {
    /// Standard input and output of this process. Reading starts with the channel.
    pub fn standard() -> Self {
        Self { input: Box::new(std::io::stdin()), output: Box::new(std::io::stdout()) }
    }
}

/// Channel `stdio`. Clones share their state.
///
/// Lines are submitted as they arrive, without waiting for turns. Reading pauses while too many requests are unanswered or
/// the output is not read. At the end of the input the accepted requests are answered, then [`start`](Channel::start)
/// returns.
#[derive(Clone)]
pub struct StdioChannel {
    inner: Arc<StdioState>,
}

struct StdioState {
    options: Options,
    /// Taken by `start`; a second call fails.
    streams: Mutex<Option<StdioStreams>>,
    /// Set while the channel runs.
    output: Mutex<Option<OutputQueue>>,
    stopped: CancellationToken,
}

impl StdioChannel {
    /// Channel name.
    pub const CHANNEL_NAME: &str = "stdio";

    /// Creates a channel on these streams.
    pub fn new(streams: StdioStreams, options: Options) -> Self {
        let (streams, output) = (Mutex::new(Some(streams)), Mutex::new(None));
        Self { inner: Arc::new(StdioState { options, streams, output, stopped: CancellationToken::new() }) }
    }

    fn output(&self) -> Result<OutputQueue, ChannelError> {
        lock(&self.inner.output).clone().ok_or_else(|| permanent_error("the channel stdio is not running"))
    }

    /// Waits for a write. The program that reads the output may be slow, but once the channel is stopped a stalled one is
    /// abandoned, because it would delay the exit.
    async fn wait_until_written<E: Into<ChannelError>>(
        &self,
        peer: &OutputPeer,
        written: impl Future<Output = Result<(), E>>,
    ) -> Result<(), ChannelError> {
        let stalled = async {
            self.inner.stopped.cancelled().await;
            peer.wait_until_stalled(STALLED_OUTPUT_TIMEOUT).await
        };
        tokio::select! {
            biased;
            written = written => written.map_err(Into::into),
            closed = peer.wait_until_closed() => Err(closed.into()),
            stalled = stalled => Err(stalled.into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn permanent_error(message: impl Into<String>) -> ChannelError {
    ChannelError::permanent(ChannelName::new(StdioChannel::CHANNEL_NAME), message)
}

fn output_error(error: &io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OutputClosed::ByPeer.into(),
        _ => permanent_error(format!("cannot write to standard output: {error}")),
    }
}

impl From<OutputClosed> for ChannelError {
    fn from(closed: OutputClosed) -> Self {
        permanent_error(match closed {
            OutputClosed::ByPeer => "standard output is closed",
            OutputClosed::Stalled => "standard output is not being read",
        })
    }
}

#[async_trait]
impl Channel for StdioChannel {
    fn name(&self) -> ChannelName {
        ChannelName::new(Self::CHANNEL_NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, has_waiting_callers: true, media: false }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let streams =
            lock(&self.inner.streams).take().ok_or_else(|| permanent_error("the channel stdio was already started"))?;
        let (output, written) = OutputQueue::open(streams.output);
        *lock(&self.inner.output) = Some(output.clone());
        let lines = line_reader::spawn_line_reader(streams.input, self.inner.options.max_line_bytes);
        let stopped = self.inner.stopped.clone();
        let peer = output.peer().clone();
        let input_end = RequestLoop::new(gateway, output, stopped).run(lines).await;
        // The last sender is dropped here, so the writer ends after the queued lines.
        lock(&self.inner.output).take();
        let flush = async { written.await.map_err(|error| output_error(&error)) };
        let flushed = self.wait_until_written(&peer, flush).await;
        input_end.map_err(|error| permanent_error(format!("cannot read standard input: {error}"))).and(flushed)
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.inner.stopped.cancel();
        Ok(())
    }

    /// Prints a message that is not the reply to a request line, such as one sent by a plugin or for an event of another
    /// channel.
    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        let output = self.output()?;
        self.wait_until_written(output.peer(), output.print_and_wait(&output_line::MessageLine::from(message))).await
    }

    async fn reply(&self, reply: &ChannelReply) -> Result<(), ChannelError> {
        let request = PendingRequest::from_event(&reply.event);
        let line = output_line::OutcomeLine::new(reply, request.as_deref());
        let output = self.output()?;
        let printed = self.wait_until_written(output.peer(), output.print_and_wait(&line)).await;
        if let Some(request) = request {
            request.release();
        }
        printed
    }

    async fn notify_delayed(&self, event: &InboundEvent, reason: &IntakeError) -> Result<(), ChannelError> {
        let request = PendingRequest::from_event(event);
        let error = output_line::LineError::new(reason.code, &reason.message);
        let line = output_line::DelayedLine::new(event, request.as_deref(), error);
        let output = self.output()?;
        self.wait_until_written(output.peer(), output.print(&line)).await
    }

    async fn on_stream_event(&self, event: &StreamEvent, message: &InboundEvent) -> Result<(), ChannelError> {
        match PendingRequest::from_event(message).filter(|request| request.wants_stream()) {
            None => Ok(()),
            Some(request) => {
                let line = output_line::StreamEventLine::new(event, message, &request);
                let output = self.output()?;
                self.wait_until_written(output.peer(), output.print(&line)).await
            }
        }
    }
}

#[cfg(test)]
#[path = "stdio/tests.rs"]
mod tests;
