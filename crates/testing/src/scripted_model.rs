//! The server itself.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use axum::Router;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::protocol::{ProviderProtocol, ReplyLedger};
use crate::scripted_reply::ReplyBody;
use crate::{ScriptedReply, partial_request};

/// A scripted, strict server of models on a free port of 127.0.0.1; it stops when it is dropped.
///
/// It speaks `OpenAI` chat and Responses, Anthropic, Gemini and Ollama, each on the path its provider has it on, and
/// answers from one script whatever it is asked in.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use capstan_testing::{ScriptedModel, ScriptedReply};
///
/// let server = ScriptedModel::start(vec![ScriptedReply::text("hi"), ScriptedReply::text("bye")]).await;
/// assert!(server.base_url().ends_with("/v1"));
/// // ... point the code under test at `server.base_url()`, then look at what it sent:
/// assert!(server.requests().is_empty());
/// assert!(server.violations().is_empty());
/// # }
/// ```
pub struct ScriptedModel {
    address: SocketAddr,
    state: SharedServerState,
    execution: ServerExecution,
}

type ReplyScript = Box<dyn FnMut(&Value, usize) -> ScriptedReply + Send>;
type SharedServerState = Arc<Mutex<ServerState>>;

struct ServerState {
    script: ReplyScript,
    check_timing: CheckTiming,
    reply_count: usize,
    requests: Vec<Value>,
    headers: Vec<HeaderMap>,
    violations: Vec<String>,
    /// What was answered and is still to be looked at.
    unchecked_requests: Vec<(ProviderProtocol, String, Bytes)>,
    ledger: ReplyLedger,
    /// The addresses of those who connected.
    clients: HashSet<SocketAddr>,
}

/// When a request is held to the grammar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckTiming {
    /// Before it is answered: one that breaks the grammar is refused.
    BeforeReply,
    /// When somebody wants to know.
    OnDemand,
}

/// How the frames of an answer go out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamPacing {
    /// Each by itself, as a model comes upon its words.
    FrameByFrame,
    /// As many at once as there are.
    AllAtOnce,
}

impl CheckTiming {
    /// Who may not take time to check must not take any between two frames either.
    fn stream_pacing(self) -> StreamPacing {
        match self {
            Self::BeforeReply => StreamPacing::FrameByFrame,
            Self::OnDemand => StreamPacing::AllAtOnce,
        }
    }
}

enum ServerExecution {
    Task(JoinHandle<()>),
    Thread { stop: Option<oneshot::Sender<Infallible>>, thread: Option<thread::JoinHandle<()>> },
}

impl ScriptedModel {
    /// Starts a server that answers with these replies in order, and with 500 once they are used up.
    ///
    /// # Panics
    ///
    /// If no port can be bound.
    pub async fn start(replies: Vec<ScriptedReply>) -> Self {
        Self::start_with(replies_in_order(replies)).await
    }

    /// Starts a server that decides on each answer from the body of the request and the number of those it has
    /// answered from the script before.
    ///
    /// # Panics
    ///
    /// If no port can be bound.
    #[expect(clippy::unused_async, reason = "it belongs into a runtime, which it needs to serve")]
    pub async fn start_with(script: impl FnMut(&Value, usize) -> ScriptedReply + Send + 'static) -> Self {
        let record = ServerState::new_shared(Box::new(script), CheckTiming::BeforeReply);
        let (listener, address) = bind_listener();
        let task = tokio::spawn(serve(listener, Arc::clone(&record)));
        Self { address, state: record, execution: ServerExecution::Task(task) }
    }

    /// [`ScriptedModel::start`] for tests without a runtime: the server has a thread of its own.
    ///
    /// # Panics
    ///
    /// If no port can be bound or no thread started.
    pub fn start_blocking(replies: Vec<ScriptedReply>) -> Self {
        Self::start_blocking_with(replies_in_order(replies))
    }

    /// [`ScriptedModel::start_with`] for tests without a runtime: the server has a thread of its own.
    ///
    /// # Panics
    ///
    /// If no port can be bound or no thread started.
    pub fn start_blocking_with(script: impl FnMut(&Value, usize) -> ScriptedReply + Send + 'static) -> Self {
        Self::spawn_on_thread(ServerState::new_shared(Box::new(script), CheckTiming::BeforeReply))
    }

    /// [`ScriptedModel::start_blocking_with`] for benchmarks, where the time of the server must not count: it answers before
    /// it has held the request to the grammar, and has all of its answer at once. Its script sees no more of the conversation
    /// than the newest message, and no tools. What was wrong it still says in [`violations`](Self::violations).
    ///
    /// # Panics
    ///
    /// If no port can be bound or no thread started.
    pub fn start_blocking_for_benchmark(script: impl FnMut(&Value, usize) -> ScriptedReply + Send + 'static) -> Self {
        Self::spawn_on_thread(ServerState::new_shared(Box::new(script), CheckTiming::OnDemand))
    }

    fn spawn_on_thread(record: SharedServerState) -> Self {
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let (send_address, address) = std::sync::mpsc::channel();
        let served = Arc::clone(&record);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let (listener, address) = bind_listener();
                send_address.send(address).expect("the starter waits for the address");
                tokio::select! {
                    () = serve(listener, served) => {}
                    // Nothing is ever sent: the sender is dropped with the server.
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv().expect("the server's thread binds a port");
        Self { address, state: record, execution: ServerExecution::Thread { stop: Some(stop), thread: Some(thread) } }
    }

    /// The base URL as people write it for `OpenAI`: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Where it is, for the other protocols: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies received, in order, those that broke the grammar included.
    pub fn requests(&self) -> Vec<Value> {
        let mut record = lock_state(&self.state);
        record.check_deferred();
        record.requests.clone()
    }

    /// The `Authorization` header of each request, in order.
    pub fn authorization_headers(&self) -> Vec<Option<String>> {
        self.header_values("authorization")
    }

    /// A header of each request, in order.
    pub fn header_values(&self, name: &str) -> Vec<Option<String>> {
        let value = |headers: &HeaderMap| headers.get(name)?.to_str().ok().map(str::to_owned);
        lock_state(&self.state).headers.iter().map(value).collect()
    }

    /// How many connections brought the requests.
    pub fn connection_count(&self) -> usize {
        lock_state(&self.state).clients.len()
    }

    /// What was wrong with the requests; empty when nothing was.
    pub fn violations(&self) -> Vec<String> {
        let mut record = lock_state(&self.state);
        record.check_deferred();
        record.violations.clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        match &mut self.execution {
            ServerExecution::Task(task) => task.abort(),
            ServerExecution::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    // A panic of that thread has already failed what the test waited for.
                    let _ = thread.join();
                }
            }
        }
    }
}

impl ServerState {
    fn new_shared(script: ReplyScript, checks: CheckTiming) -> SharedServerState {
        let (requests, headers, violations, unchecked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (memory, clients, answered) = (ReplyLedger::default(), HashSet::new(), 0);
        let record = Self {
            script,
            check_timing: checks,
            reply_count: answered,
            requests,
            headers,
            violations,
            unchecked_requests: unchecked,
            ledger: memory,
            clients,
        };
        Arc::new(Mutex::new(record))
    }

    /// Takes a request in and gives what is needed of it to answer it, or the explanation of what is wrong with it.
    fn receive(
        &mut self,
        protocol: ProviderProtocol,
        path: &str,
        body: &Bytes,
        headers: HeaderMap,
    ) -> Result<Value, String> {
        let no_json = |error| format!("the body is not JSON: {error}");
        let read = match self.check_timing {
            CheckTiming::BeforeReply => serde_json::from_slice(body).map_err(no_json),
            CheckTiming::OnDemand => partial_request::read_without_history(body).map_err(no_json),
        };
        let request = read.inspect_err(|explanation| self.violations.push(explanation.clone()))?;
        self.headers.push(headers);
        if self.check_timing == CheckTiming::OnDemand {
            self.unchecked_requests.push((protocol, path.to_owned(), body.clone()));
            return Ok(request);
        }
        self.requests.push(request.clone());
        let wrong = self.record_violations(protocol, path, &request);
        if wrong.is_empty() {
            Ok(request)
        } else {
            Err(format!("the request breaks the grammar: {}", wrong.join("; ")))
        }
    }

    /// What is wrong with the newest request, which is noted.
    fn record_violations(&mut self, protocol: ProviderProtocol, path: &str, request: &Value) -> Vec<String> {
        let number = self.requests.len() - 1;
        let wrong = protocol.violations(path, request, &self.ledger);
        self.violations.extend(wrong.iter().map(|violation| format!("request {number}: {violation}")));
        wrong
    }

    /// Looks at what was answered before.
    fn check_deferred(&mut self) {
        for (protocol, path, body) in std::mem::take(&mut self.unchecked_requests) {
            let request: Value = serde_json::from_slice(&body).expect("it was read before");
            self.requests.push(request.clone());
            self.record_violations(protocol, &path, &request);
        }
    }

    /// The answer of the script.
    fn next_reply(&mut self, request: &Value) -> ScriptedReply {
        let answered = self.reply_count;
        self.reply_count += 1;
        (self.script)(request, answered)
    }
}

fn replies_in_order(replies: Vec<ScriptedReply>) -> impl FnMut(&Value, usize) -> ScriptedReply + Send {
    let mut replies = VecDeque::from(replies);
    move |_, answered| {
        let used_up = || {
            let message = format!("the script is used up: it has {answered} replies and this is one request more");
            ScriptedReply::status(500, error_body(&message))
        };
        replies.pop_front().unwrap_or_else(used_up)
    }
}

fn bind_listener() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    // Each frame goes out when it is written, as with a provider: a short one would otherwise wait for the client's
    // acknowledgement of the one before, 40 ms on a connection that is used again. Accepted connections inherit it.
    socket.set_nodelay(true).expect("a socket that does not wait");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let listener = socket.listen(1024).expect("a listener");
    let address = listener.local_addr().expect("a bound listener has an address");
    (listener, address)
}

async fn serve(listener: TcpListener, record: SharedServerState) {
    let app = Router::new().fallback(handle_request).layer(DefaultBodyLimit::disable()).with_state(record);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    // Serving ends only with the task or the thread that owns it.
    let _ = axum::serve(listener, app).await;
}

async fn handle_request(
    State(record): State<SharedServerState>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    lock_state(&record).clients.insert(client);
    let refuse =
        |status, explanation: &str| respond(status, "application/json", &[], HttpBody::from(error_body(explanation)));
    let Some(protocol) = ProviderProtocol::from_path(uri.path()) else {
        return refuse(StatusCode::NOT_FOUND, "nothing is spoken here");
    };
    let taken = lock_state(&record).receive(protocol, uri.path(), &body, headers);
    let request = match taken {
        Ok(request) => request,
        Err(explanation) => return refuse(StatusCode::BAD_REQUEST, &explanation),
    };
    let reply = lock_state(&record).next_reply(&request);
    let status = |code| StatusCode::from_u16(code).expect("a status code a server can send");
    match &reply.body {
        ReplyBody::Status { code, body } => {
            respond(status(*code), "application/json", &reply.headers, HttpBody::from(body.clone()))
        }
        ReplyBody::ContextOverflow => {
            let (code, body) = protocol.overflow_response();
            respond(status(code), "application/json", &reply.headers, HttpBody::from(body))
        }
        ReplyBody::Completion(_)
        | ReplyBody::Disconnect { .. }
        | ReplyBody::StreamError { .. }
        | ReplyBody::Raw { .. } => {
            let (frames, pace) = {
                let mut record = lock_state(&record);
                (
                    protocol.frames(uri.path(), &request, &reply.body, &mut record.ledger),
                    record.check_timing.stream_pacing(),
                )
            };
            respond(StatusCode::OK, protocol.content_type(), &reply.headers, stream_frames(&reply, frames, pace))
        }
    }
}

fn stream_frames(reply: &ScriptedReply, frames: Vec<String>, pace: StreamPacing) -> HttpBody {
    let is_cut = matches!(reply.body, ReplyBody::Disconnect { .. });
    let mut gate = reply.barrier.clone();
    HttpBody::from_stream(async_stream::stream! {
        for frame in frames {
            yield Ok(Bytes::from(frame));
            if pace == StreamPacing::FrameByFrame || is_cut {
                // Without this, hyper may write several frames at once and break off before they are out.
                tokio::task::yield_now().await;
            }
            if let Some(gate) = gate.take() {
                gate.wait_for_release().await;
            }
        }
        if is_cut {
            yield Err(std::io::Error::other("cut by the script"));
        }
    })
}

fn respond(status: StatusCode, content_type: &'static str, more: &[(String, String)], body: HttpBody) -> Response {
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    for (name, value) in more {
        let name = HeaderName::try_from(name).expect("the name of a header");
        response.headers_mut().insert(name, value.parse().expect("the value of a header"));
    }
    response
}

fn error_body(message: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string()
}

fn lock_state(record: &SharedServerState) -> MutexGuard<'_, ServerState> {
    record.lock().expect("a script that panicked has failed its test")
}
