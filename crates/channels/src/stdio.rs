//! One JSON object per line, in on the standard input and out on the standard output, for scripts and supervisors.
//!
//! Lines are read and written by threads of their own: a terminal or pipe that blocks holds up nothing else, and the
//! process can end while one of them still waits.

mod asked;
mod lines;
mod listening;
mod output;
mod request;
mod wire;

use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::Inbound;
use capstan_hooks::contracts::{Answer, Channel, ChannelCapabilities, ChannelError, Gateway, Refusal};
use capstan_protocol::{ChannelName, Outbound, StreamEvent};
use tokio_util::sync::CancellationToken;

pub use request::CODES;

use asked::Asked;
use listening::Listening;
use output::{Gone, Output, Reader};

/// How long a reader may take nothing, once the channel was stopped, before it is taken to be gone.
const UNREAD: Duration = Duration::from_secs(5);

/// What the channel is set to.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest line that is read, in bytes. Of a longer one nothing is kept.
    pub max_line_bytes: usize,
    /// What to do about an error of this code; empty where there is nothing to say.
    pub hint: fn(&str) -> &'static str,
}

/// Where the channel reads and writes.
pub struct Streams {
    /// The lines that are asked.
    pub input: Box<dyn Read + Send>,
    /// The lines that answer.
    pub output: Box<dyn Write + Send>,
}

impl Streams {
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
pub struct Stdio {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    /// Taken when it starts, which it does once.
    streams: Mutex<Option<Streams>>,
    /// Open while it listens.
    output: Mutex<Option<Output>>,
    stopped: CancellationToken,
}

impl Stdio {
    /// Its name.
    pub const NAME: &str = "stdio";

    /// A channel on these streams.
    pub fn new(streams: Streams, options: Options) -> Self {
        let (streams, output) = (Mutex::new(Some(streams)), Mutex::new(None));
        Self { inner: Arc::new(Inner { options, streams, output, stopped: CancellationToken::new() }) }
    }

    fn output(&self) -> Result<Output, ChannelError> {
        lock(&self.inner.output).clone().ok_or_else(|| hopeless("nobody listens on the channel stdio"))
    }

    /// Waits for what is to be written. A reader may take its time, but not when the channel was stopped: then it would
    /// hold up the end of the process.
    async fn written<E: Into<ChannelError>>(
        &self,
        reader: &Reader,
        written: impl Future<Output = Result<(), E>>,
    ) -> Result<(), ChannelError> {
        let unread = async {
            self.inner.stopped.cancelled().await;
            reader.unread_for(UNREAD).await
        };
        tokio::select! {
            biased;
            written = written => written.map_err(Into::into),
            gone = reader.gone() => Err(gone.into()),
            unread = unread => Err(unread.into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hopeless(message: impl Into<String>) -> ChannelError {
    ChannelError::hopeless(ChannelName::new(Stdio::NAME), message)
}

fn unwritable(error: &io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Gone::Closed.into(),
        _ => hopeless(format!("the standard output cannot be written: {error}")),
    }
}

impl From<Gone> for ChannelError {
    fn from(gone: Gone) -> Self {
        hopeless(match gone {
            Gone::Closed => "the standard output is closed: nobody reads it any more",
            Gone::Unread => "nobody reads the standard output",
        })
    }
}

#[async_trait]
impl Channel for Stdio {
    fn name(&self) -> ChannelName {
        ChannelName::new(Self::NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, caller_waits: true }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let streams = lock(&self.inner.streams).take().ok_or_else(|| hopeless("it was started before"))?;
        let (output, written) = Output::open(streams.output);
        *lock(&self.inner.output) = Some(output.clone());
        let lines = lines::read(streams.input, self.inner.options.max_line_bytes);
        let stopped = self.inner.stopped.clone();
        let reader = output.reader().clone();
        let read = Listening::new(gateway, output, self.inner.options, stopped).run(lines).await;
        // The last one who could print is gone with it, so the writer ends when it has written what there is.
        lock(&self.inner.output).take();
        let written = async { written.await.map_err(|error| unwritable(&error)) };
        let flushed = self.written(&reader, written).await;
        read.map_err(|error| hopeless(format!("the standard input: {error}"))).and(flushed)
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.inner.stopped.cancel();
        Ok(())
    }

    /// A message that answers no line: one that a plugin sends, or that belongs to an event of another channel.
    async fn send(&self, message: &Outbound) -> Result<(), ChannelError> {
        let output = self.output()?;
        self.written(output.reader(), output.print_now(&wire::Message::from(message))).await
    }

    async fn answer(&self, answer: &Answer) -> Result<(), ChannelError> {
        let asked = Asked::of(&answer.event);
        let line = wire::Answered::new(answer, asked.as_deref());
        let output = self.output()?;
        let printed = self.written(output.reader(), output.print_now(&line)).await;
        if let Some(asked) = asked {
            asked.answered();
        }
        printed
    }

    async fn delayed(&self, event: &Inbound, why: &Refusal) -> Result<(), ChannelError> {
        let asked = Asked::of(event);
        let error = wire::Error { code: why.code, message: &why.message, hint: (self.inner.options.hint)(why.code) };
        let line = wire::Waits::new(event, asked.as_deref(), error);
        let output = self.output()?;
        self.written(output.reader(), output.print(&line)).await
    }

    async fn on_event(&self, event: &StreamEvent, message: &Inbound) -> Result<(), ChannelError> {
        match Asked::of(message).filter(|asked| asked.streams()) {
            None => Ok(()),
            Some(asked) => {
                let line = wire::Streamed::new(event, message, &asked);
                let output = self.output()?;
                self.written(output.reader(), output.print(&line)).await
            }
        }
    }
}

#[cfg(test)]
#[path = "stdio/tests.rs"]
mod tests;
