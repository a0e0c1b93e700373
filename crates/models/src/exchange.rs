//! One request and its answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use capstan_hooks::contracts::{ModelError, ModelEvent, ModelStream};
use futures::StreamExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::failure::{Call, Failure, Fault};
use crate::frames::{Damage, Frames, Framing, LONGEST};
use crate::retry;
use crate::wire::{Progress, Reader};

/// How much of a refusal is read.
const LONGEST_REFUSAL: usize = 64 * 1024;
/// How long the end of a connection is waited for when the answer is whole: one that was read to its end is used again.
const TRAILER: Duration = Duration::from_millis(50);

/// A request, to be sent as often as it takes.
pub(crate) struct Exchange<'a> {
    pub client: &'a Client,
    pub endpoint: &'a Endpoint,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub timeout: Duration,
    pub clock: &'a Clock,
}

/// A request that failed before its first word.
pub(crate) struct Refused {
    pub failure: Failure,
    /// After how long the provider wants to be asked again, if it says so.
    pub asked: Option<Duration>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, asked: None }
    }
}

impl Exchange<'_> {
    /// Sends the request and waits for the first word, so that a refused request is an error and not a stream.
    pub(crate) async fn begin(
        &self,
        framing: Framing,
        reader: Box<dyn Reader>,
        call: &Call,
    ) -> Result<ModelStream, Refused> {
        let request = self.client.post(self.endpoint.url.clone()).headers(self.headers.clone()).body(self.body.clone());
        let deadline = Instant::now() + self.timeout;
        let response = match timeout_at(deadline, request.send()).await {
            Err(_) => return Err(call.silent(self.timeout).into()),
            Ok(Err(error)) => return Err(call.not_sent(&error).into()),
            Ok(Ok(response)) => response,
        };
        if response.status().is_redirection() {
            return Err(call.moved(response.status().as_u16(), location(&response).as_ref()).into());
        }
        if response.status() != reqwest::StatusCode::OK {
            return Err(refusal(response, deadline, call, self.clock).await);
        }
        let (call, timeout, may_be_page) = (call.clone(), self.timeout, is_html(&response));
        let mut answer = Answer {
            response,
            frames: Frames::new(framing),
            reader,
            call,
            timeout,
            deadline,
            spoke: false,
            may_be_page,
            unsaid: 0,
            ready: VecDeque::new(),
            state: State::Open,
            failed: None,
        };
        match answer.listen().await {
            // Something was said, be it a part of a call or in the same bytes as the failure, so this is no refusal.
            Err(failure) if answer.spoke => answer.failed = Some(failure.error),
            listened => listened?,
        }
        Ok(answer.events().boxed())
    }
}

/// Where a redirect leads, if it leads to a server.
fn location(response: &Response) -> Option<Url> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    response.url().join(location).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Whether an answer says that it is a page. Some servers say so of everything.
fn is_html(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}

/// Reads a status other than 200.
async fn refusal(mut response: Response, deadline: Instant, call: &Call, clock: &Clock) -> Refused {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = Vec::new();
    while body.len() < LONGEST_REFUSAL
        && let Ok(Ok(Some(bytes))) = timeout_at(deadline, response.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    let body = String::from_utf8_lossy(&body);
    let asked = retry::asked(&headers, &body, clock.now());
    let mut failure = call.refused(status, &body, asked.after);
    if asked.should == Some(false) {
        failure.again = retry::Again::Never;
    }
    Refused { failure, asked: asked.after }
}

/// An answer as it comes.
struct Answer {
    response: Response,
    frames: Frames,
    reader: Box<dyn Reader>,
    call: Call,
    timeout: Duration,
    /// Until when the next word must be here.
    deadline: Instant,
    /// Whether a word has come, or the beginning of a call.
    spoke: bool,
    /// Whether it says that it is a page, and nothing came yet that shows whether it is.
    may_be_page: bool,
    /// How many bytes came that said nothing to be handed on, as those of a call that does not end.
    unsaid: usize,
    /// What was read and not handed on yet.
    ready: VecDeque<ModelEvent>,
    state: State,
    /// Why it broke off, to be told after what was read.
    failed: Option<ModelError>,
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    /// It is whole.
    Whole,
}

impl Answer {
    /// Reads on until there is something to hand on.
    async fn listen(&mut self) -> Result<(), Failure> {
        self.unsaid = 0;
        if self.spoke {
            // Whoever reads may have taken their time.
            self.deadline = Instant::now() + self.timeout;
        }
        while self.ready.is_empty() && self.state == State::Open {
            match timeout_at(self.deadline, self.response.chunk()).await {
                Err(_) if !self.spoke => return Err(self.call.silent(self.timeout)),
                Err(_) => return Err(Failure { error: self.call.stalled(self.timeout), again: retry::Again::Never }),
                Ok(Ok(Some(bytes))) => {
                    self.refuse_page(&bytes)?;
                    let read = self.frames.push(&bytes);
                    self.read_frames()?;
                    read.map_err(|damage| self.damaged(damage))?;
                    self.unsaid += bytes.len();
                    if self.unsaid > LONGEST {
                        return Err(self.damaged(Damage::TooLong));
                    }
                }
                Ok(Ok(None)) => {
                    self.frames.end().map_err(|damage| self.damaged(damage))?;
                    self.read_frames()?;
                    self.finish()?;
                }
                Ok(Err(error)) => {
                    // What was said is whole if the reader thinks so.
                    if self.finish().is_err() {
                        let lost = Failure { error: self.call.fault(&LOST).error, again: retry::Again::Later };
                        return Err(if self.spoke { lost } else { self.call.not_sent(&error) });
                    }
                }
            }
        }
        Ok(())
    }

    /// A page begins with a tag; no provider's protocol does.
    fn refuse_page(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.may_be_page {
            return Ok(());
        }
        let Some(first) = bytes.trim_ascii_start().first() else { return Ok(()) };
        self.may_be_page = false;
        if *first == b'<' { Err(self.call.page()) } else { Ok(()) }
    }

    fn read_frames(&mut self) -> Result<(), Failure> {
        while let Some(frame) = self.frames.next() {
            if self.state == State::Whole {
                continue;
            }
            let mut events = Vec::new();
            let progress = self.reader.read(&frame, &mut events).map_err(|fault| self.call.fault(&fault))?;
            self.spoke |= !events.is_empty() || self.reader.is_calling();
            self.ready.extend(events);
            match progress {
                Progress::Idle => {}
                Progress::More => self.deadline = Instant::now() + self.timeout,
                Progress::Complete => self.finish()?,
            }
        }
        Ok(())
    }

    /// Nothing more is to come.
    fn finish(&mut self) -> Result<(), Failure> {
        if self.state == State::Open {
            let last = self.reader.finish().map_err(|fault| self.call.fault(&fault))?;
            self.ready.extend(last);
            self.state = State::Whole;
        }
        Ok(())
    }

    fn damaged(&self, damage: Damage) -> Failure {
        self.call.fault(&match damage {
            Damage::NotText => Fault::Senseless("it sent something that is not text"),
            Damage::TooLong => Fault::Senseless("it sent something without an end"),
        })
    }

    fn events(mut self) -> impl futures::Stream<Item = Result<ModelEvent, ModelError>> + Send {
        async_stream::stream! {
            loop {
                while let Some(event) = self.ready.pop_front() {
                    if event == ModelEvent::Stop {
                        self.drain().await;
                    }
                    yield Ok(event);
                }
                if let Some(error) = self.failed.take() {
                    yield Err(error);
                    return;
                }
                if self.state == State::Whole {
                    return;
                }
                if let Err(failure) = self.listen().await {
                    // What came before the failure in the same bytes was said.
                    while let Some(event) = self.ready.pop_front() {
                        yield Ok(event);
                    }
                    yield Err(failure.error);
                    return;
                }
            }
        }
    }

    /// Reads the little that follows an answer, so that its connection can be used again.
    async fn drain(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        // A server that keeps the connection open loses it.
        let _kept_open = timeout(TRAILER, rest).await;
    }
}

const LOST: Fault = Fault::Cut("the connection was lost");
