//! One JSON object per line, in on the standard input and out on the standard output, for scripts and supervisors.
//!
//! Lines are read and written by threads of their own: a terminal or pipe that blocks holds up nothing else, and the
//! process can end while one of them still waits.

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

use output_queue::{OutputQueue, OutputReader, ReaderGone};
use pending_request::PendingRequest;
use request_loop::RequestLoop;

/// How long a reader may take nothing, once the channel was stopped, before it is taken to be gone.
const STALLED_READER_TIMEOUT: Duration = Duration::from_secs(5);

/// What the channel is set to.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest line that is read, in bytes. Of a longer one nothing is kept.
    pub max_line_bytes: usize,
}

/// Where the channel reads and writes.
pub struct StdioStreams {
    /// The lines that are asked.
    pub input: Box<dyn Read + Send>,
    /// The lines that answer.
    pub output: Box<dyn Write + Send>,
}

impl StdioStreams {
    /// The standard input and output of this process. Nothing is read before the channel starts.
    pub fn standard() -> Self {
        Self { input: Box::new(std::io::stdin()), output: Box::new(std::io::stdout()) }
    }
}

/// The channel `stdio`. Clones are the same channel.
///
/// It takes lines in as they come, without waiting for turns, and stops when too many are unanswered or nobody reads
/// what it writes. At the end of its input it answers what it has accepted, then [`start`](Channel::start) returns.
#[derive(Clone)]
pub struct StdioChannel {
    inner: Arc<StdioState>,
}

struct StdioState {
    options: Options,
    /// Taken when it starts, which it does once.
    streams: Mutex<Option<StdioStreams>>,
    /// Open while it listens.
    output: Mutex<Option<OutputQueue>>,
    stopped: CancellationToken,
}

impl StdioChannel {
    /// Its name.
    pub const CHANNEL_NAME: &str = "stdio";

    /// A channel on these streams.
    pub fn new(streams: StdioStreams, options: Options) -> Self {
        let (streams, output) = (Mutex::new(Some(streams)), Mutex::new(None));
        Self { inner: Arc::new(StdioState { options, streams, output, stopped: CancellationToken::new() }) }
    }

    fn output(&self) -> Result<OutputQueue, ChannelError> {
        lock(&self.inner.output).clone().ok_or_else(|| permanent_error("nobody listens on the channel stdio"))
    }

    /// Waits for what is to be written. A reader may take its time, but not when the channel was stopped: then it would
    /// hold up the end of the process.
    async fn wait_written<E: Into<ChannelError>>(
        &self,
        reader: &OutputReader,
        written: impl Future<Output = Result<(), E>>,
    ) -> Result<(), ChannelError> {
        let unread = async {
            self.inner.stopped.cancelled().await;
            reader.wait_stalled(STALLED_READER_TIMEOUT).await
        };
        tokio::select! {
            biased;
            written = written => written.map_err(Into::into),
            gone = reader.wait_gone() => Err(gone.into()),
            unread = unread => Err(unread.into()),
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
        io::ErrorKind::BrokenPipe => ReaderGone::Closed.into(),
        _ => permanent_error(format!("the standard output cannot be written: {error}")),
    }
}

impl From<ReaderGone> for ChannelError {
    fn from(gone: ReaderGone) -> Self {
        permanent_error(match gone {
            ReaderGone::Closed => "the standard output is closed: nobody reads it any more",
            ReaderGone::Stalled => "nobody reads the standard output",
        })
    }
}

#[async_trait]
impl Channel for StdioChannel {
    fn name(&self) -> ChannelName {
        ChannelName::new(Self::CHANNEL_NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, has_waiting_callers: true }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let streams = lock(&self.inner.streams).take().ok_or_else(|| permanent_error("it was started before"))?;
        let (output, written) = OutputQueue::open(streams.output);
        *lock(&self.inner.output) = Some(output.clone());
        let lines = line_reader::spawn_reader(streams.input, self.inner.options.max_line_bytes);
        let stopped = self.inner.stopped.clone();
        let reader = output.reader().clone();
        let read = RequestLoop::new(gateway, output, stopped).run(lines).await;
        // The last one who could print is gone with it, so the writer ends when it has written what there is.
        lock(&self.inner.output).take();
        let written = async { written.await.map_err(|error| output_error(&error)) };
        let flushed = self.wait_written(&reader, written).await;
        read.map_err(|error| permanent_error(format!("the standard input: {error}"))).and(flushed)
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.inner.stopped.cancel();
        Ok(())
    }

    /// A message that answers no line: one that a plugin sends, or that belongs to an event of another channel.
    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        let output = self.output()?;
        self.wait_written(output.reader(), output.print_and_wait(&output_line::MessageLine::from(message))).await
    }

    async fn reply(&self, answer: &ChannelReply) -> Result<(), ChannelError> {
        let asked = PendingRequest::from_event(&answer.event);
        let line = output_line::OutcomeLine::new(answer, asked.as_deref());
        let output = self.output()?;
        let printed = self.wait_written(output.reader(), output.print_and_wait(&line)).await;
        if let Some(asked) = asked {
            asked.release();
        }
        printed
    }

    async fn notify_delayed(&self, event: &InboundEvent, why: &IntakeError) -> Result<(), ChannelError> {
        let asked = PendingRequest::from_event(event);
        let error = output_line::LineError::new(why.code, &why.message);
        let line = output_line::DelayedLine::new(event, asked.as_deref(), error);
        let output = self.output()?;
        self.wait_written(output.reader(), output.print(&line)).await
    }

    async fn on_stream_event(&self, event: &StreamEvent, message: &InboundEvent) -> Result<(), ChannelError> {
        match PendingRequest::from_event(message).filter(|asked| asked.wants_stream()) {
            None => Ok(()),
            Some(asked) => {
                let line = output_line::StreamEventLine::new(event, message, &asked);
                let output = self.output()?;
                self.wait_written(output.reader(), output.print(&line)).await
            }
        }
    }
}

#[cfg(test)]
#[path = "stdio/tests.rs"]
mod tests;
