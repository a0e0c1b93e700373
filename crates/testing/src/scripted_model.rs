//! Server with the wire protocols of model providers.

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

/// Scripted, strict model server on a free port of 127.0.0.1; it stops when dropped.
///
/// Serves `OpenAI` chat and Responses, Anthropic, Gemini and Ollama on the paths of their providers, and answers from
/// one script in the protocol of the request.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use capstan_testing::{ScriptedModel, ScriptedReply};
///
/// let server = ScriptedModel::start(vec![ScriptedReply::text("hi"), ScriptedReply::text("bye")]).await;
/// assert!(server.base_url().ends_with("/v1"));
/// // ... point the code under test at `server.base_url()`, then check its requests:
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
    /// Requests that were answered but not validated yet.
    unchecked_requests: Vec<(ProviderProtocol, String, Bytes)>,
    ledger: ReplyLedger,
    /// Addresses of the clients that connected.
    clients: HashSet<SocketAddr>,
}

/// Time at which a request is validated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckTiming {
    /// Before the reply; an invalid request is refused.
    BeforeReply,
    /// On demand, as soon as a test asks for requests or violations.
    OnDemand,
}

/// Pacing of the frames of a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamPacing {
    /// One by one, as a model generates them.
    FrameByFrame,
    /// As many at once as possible.
    AllAtOnce,
}

impl CheckTiming {
    /// Returns the pacing: a benchmark must wait neither for validation nor between frames.
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
    /// Starts a server that answers with these replies in order, and with status 500 after the last one.
    ///
    /// # Panics
    ///
    /// Panics if no port can be bound.
    pub async fn start(replies: Vec<ScriptedReply>) -> Self {
        Self::start_with(replies_in_order(replies)).await
    }

    /// Starts a server that computes each reply from the request body and the number of scripted replies before it.
    ///
    /// # Panics
    ///
    /// Panics if no port can be bound.
    #[expect(clippy::unused_async, reason = "must be called within the runtime that serves it")]
    pub async fn start_with(script: impl FnMut(&Value, usize) -> ScriptedReply + Send + 'static) -> Self {
        let state = ServerState::new_shared(Box::new(script), CheckTiming::BeforeReply);
        let (listener, address) = bind_listener();
        let task = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { address, state, execution: ServerExecution::Task(task) }
    }

    /// [`ScriptedModel::start`] for tests without a runtime: the server has its own thread.
    ///
    /// # Panics
    ///
    /// Panics if no port can be bound or no thread started.
    pub fn start_blocking(replies: Vec<ScriptedReply>) -> Self {
        Self::start_blocking_with(replies_in_order(replies))
    }

    /// [`ScriptedModel::start_with`] for tests without a runtime: the server has its own thread.
    ///
    /// # Panics
    ///
    /// Panics if no port can be bound or no thread started.
    pub fn start_blocking_with(script: impl FnMut(&Value, usize) -> ScriptedReply + Send + 'static) -> Self {
        Self::spawn_on_thread(ServerState::new_shared(Box::new(script), CheckTiming::BeforeReply))
    }

    /// [`ScriptedModel::start_blocking_with`] for benchmarks, in which the time of the server must not count: requests
    /// are validated after the reply, and a reply is sent at once. The script sees only the newest message of the
    /// conversation, and no tools. [`violations`](Self::violations) still reports invalid requests.
    ///
    /// # Panics
    ///
    /// Panics if no port can be bound or no thread started.
    pub fn start_blocking_for_benchmark(script: impl FnMut(&Value, usize) -> ScriptedReply + Send + 'static) -> Self {
        Self::spawn_on_thread(ServerState::new_shared(Box::new(script), CheckTiming::OnDemand))
    }

    fn spawn_on_thread(state: SharedServerState) -> Self {
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let (send_address, address) = std::sync::mpsc::channel();
        let server_state = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let (listener, address) = bind_listener();
                send_address.send(address).expect("the starter waits for the address");
                tokio::select! {
                    () = serve(listener, server_state) => {}
                    // No value is ever sent: the sender is dropped with the server.
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv().expect("the server's thread binds a port");
        Self { address, state, execution: ServerExecution::Thread { stop: Some(stop), thread: Some(thread) } }
    }

    /// Returns the base URL in the form used for `OpenAI`: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Returns the origin, for the other protocols: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the received bodies, in order, including invalid ones.
    pub fn requests(&self) -> Vec<Value> {
        let mut state = lock_state(&self.state);
        state.check_deferred();
        state.requests.clone()
    }

    /// Returns the `Authorization` header of each request, in order.
    pub fn authorization_headers(&self) -> Vec<Option<String>> {
        self.header_values("authorization")
    }

    /// Returns a header of each request, in order.
    pub fn header_values(&self, name: &str) -> Vec<Option<String>> {
        let value = |headers: &HeaderMap| headers.get(name)?.to_str().ok().map(str::to_owned);
        lock_state(&self.state).headers.iter().map(value).collect()
    }

    /// Returns the number of connections that carried the requests.
    pub fn connection_count(&self) -> usize {
        lock_state(&self.state).clients.len()
    }

    /// Returns the violations of all requests.
    pub fn violations(&self) -> Vec<String> {
        let mut state = lock_state(&self.state);
        state.check_deferred();
        state.violations.clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        match &mut self.execution {
            ServerExecution::Task(task) => task.abort(),
            ServerExecution::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    // A panic of the thread has already failed the test.
                    let _ = thread.join();
                }
            }
        }
    }
}

impl ServerState {
    fn new_shared(script: ReplyScript, check_timing: CheckTiming) -> SharedServerState {
        let (requests, headers, violations, unchecked_requests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (ledger, clients, reply_count) = (ReplyLedger::default(), HashSet::new(), 0);
        let state = Self {
            script,
            check_timing,
            reply_count,
            requests,
            headers,
            violations,
            unchecked_requests,
            ledger,
            clients,
        };
        Arc::new(Mutex::new(state))
    }

    /// Records a request and returns the part that is needed to answer it, or an explanation of what is wrong with it.
    fn receive(
        &mut self,
        protocol: ProviderProtocol,
        path: &str,
        body: &Bytes,
        headers: HeaderMap,
    ) -> Result<Value, String> {
        let not_json = |error| format!("the body is not JSON: {error}");
        let parsed = match self.check_timing {
            CheckTiming::BeforeReply => serde_json::from_slice(body).map_err(not_json),
            CheckTiming::OnDemand => partial_request::read_without_history(body).map_err(not_json),
        };
        let request = parsed.inspect_err(|explanation| self.violations.push(explanation.clone()))?;
        self.headers.push(headers);
        if self.check_timing == CheckTiming::OnDemand {
            self.unchecked_requests.push((protocol, path.to_owned(), body.clone()));
            return Ok(request);
        }
        self.requests.push(request.clone());
        let violations = self.record_violations(protocol, path, &request);
        if violations.is_empty() {
            Ok(request)
        } else {
            Err(format!("the request breaks the grammar: {}", violations.join("; ")))
        }
    }

    /// Validates the newest request and records its violations.
    fn record_violations(&mut self, protocol: ProviderProtocol, path: &str, request: &Value) -> Vec<String> {
        let number = self.requests.len() - 1;
        let violations = protocol.violations(path, request, &self.ledger);
        self.violations.extend(violations.iter().map(|violation| format!("request {number}: {violation}")));
        violations
    }

    /// Validates the requests that were answered before.
    fn check_deferred(&mut self) {
        for (protocol, path, body) in std::mem::take(&mut self.unchecked_requests) {
            let request: Value = serde_json::from_slice(&body).expect("the body was parsed before");
            self.requests.push(request.clone());
            self.record_violations(protocol, &path, &request);
        }
    }

    /// Asks the script for the next reply.
    fn next_reply(&mut self, request: &Value) -> ScriptedReply {
        let reply_count = self.reply_count;
        self.reply_count += 1;
        (self.script)(request, reply_count)
    }
}

fn replies_in_order(replies: Vec<ScriptedReply>) -> impl FnMut(&Value, usize) -> ScriptedReply + Send {
    let mut replies = VecDeque::from(replies);
    move |_, reply_count| {
        let script_exhausted = || {
            let message = format!("the script is exhausted: it has {reply_count} replies and this is one request more");
            ScriptedReply::status(500, error_body(&message))
        };
        replies.pop_front().unwrap_or_else(script_exhausted)
    }
}

fn bind_listener() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    // Send each frame when it is written, as a provider does: otherwise a short one would wait for the client's
    // acknowledgement of the previous one, 40 ms on a reused connection. Accepted connections inherit the option.
    socket.set_nodelay(true).expect("TCP_NODELAY can be set");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let listener = socket.listen(1024).expect("a listener");
    let address = listener.local_addr().expect("a bound listener has an address");
    (listener, address)
}

async fn serve(listener: TcpListener, state: SharedServerState) {
    let app = Router::new().fallback(handle_request).layer(DefaultBodyLimit::disable()).with_state(state);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    // Serving ends only with the task or thread that owns it.
    let _ = axum::serve(listener, app).await;
}

async fn handle_request(
    State(state): State<SharedServerState>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    lock_state(&state).clients.insert(client);
    let refuse =
        |status, explanation: &str| respond(status, "application/json", &[], HttpBody::from(error_body(explanation)));
    let Some(protocol) = ProviderProtocol::from_path(uri.path()) else {
        return refuse(StatusCode::NOT_FOUND, "no protocol is served on this path");
    };
    let received = lock_state(&state).receive(protocol, uri.path(), &body, headers);
    let request = match received {
        Ok(request) => request,
        Err(explanation) => return refuse(StatusCode::BAD_REQUEST, &explanation),
    };
    let reply = lock_state(&state).next_reply(&request);
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
            let (frames, pacing) = {
                let mut state = lock_state(&state);
                (
                    protocol.frames(uri.path(), &request, &reply.body, &mut state.ledger),
                    state.check_timing.stream_pacing(),
                )
            };
            respond(StatusCode::OK, protocol.content_type(), &reply.headers, stream_frames(&reply, frames, pacing))
        }
    }
}

fn stream_frames(reply: &ScriptedReply, frames: Vec<String>, pacing: StreamPacing) -> HttpBody {
    let disconnects = matches!(reply.body, ReplyBody::Disconnect { .. });
    let mut barrier = reply.barrier.clone();
    HttpBody::from_stream(async_stream::stream! {
        for frame in frames {
            yield Ok(Bytes::from(frame));
            if pacing == StreamPacing::FrameByFrame || disconnects {
                // Without this, hyper may coalesce frames and disconnect before they are sent.
                tokio::task::yield_now().await;
            }
            if let Some(barrier) = barrier.take() {
                barrier.wait_for_release().await;
            }
        }
        if disconnects {
            yield Err(std::io::Error::other("disconnected by the script"));
        }
    })
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    extra_headers: &[(String, String)],
    body: HttpBody,
) -> Response {
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    for (name, value) in extra_headers {
        let name = HeaderName::try_from(name).expect("the name of a header");
        response.headers_mut().insert(name, value.parse().expect("the value of a header"));
    }
    response
}

fn error_body(message: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string()
}

fn lock_state(state: &SharedServerState) -> MutexGuard<'_, ServerState> {
    state.lock().expect("a script that panicked has failed its test")
}
