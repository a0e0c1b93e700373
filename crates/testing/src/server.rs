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

use crate::Reply;
use crate::protocol::{Memory, Protocol};
use crate::reply::Body;

/// A scripted, strict server of models on a free port of 127.0.0.1; it stops when it is dropped.
///
/// It speaks `OpenAI` chat and Responses, Anthropic, Gemini and Ollama, each on the path its provider has it on, and
/// answers from one script whatever it is asked in.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use capstan_testing::{Reply, ScriptedModel};
///
/// let server = ScriptedModel::start(vec![Reply::text("hi"), Reply::text("bye")]).await;
/// assert!(server.base_url().ends_with("/v1"));
/// // ... point the code under test at `server.base_url()`, then look at what it sent:
/// assert!(server.requests().is_empty());
/// assert!(server.violations().is_empty());
/// # }
/// ```
pub struct ScriptedModel {
    address: SocketAddr,
    record: Shared,
    runs_on: RunsOn,
}

type Script = Box<dyn FnMut(&Value, usize) -> Reply + Send>;
type Shared = Arc<Mutex<Record>>;

struct Record {
    script: Script,
    answered: usize,
    requests: Vec<Value>,
    headers: Vec<HeaderMap>,
    violations: Vec<String>,
    memory: Memory,
    /// The addresses of those who connected.
    clients: HashSet<SocketAddr>,
}

enum RunsOn {
    Task(JoinHandle<()>),
    Thread { stop: Option<oneshot::Sender<Infallible>>, thread: Option<thread::JoinHandle<()>> },
}

impl ScriptedModel {
    /// Starts a server that answers with these replies in order, and with 500 once they are used up.
    ///
    /// # Panics
    ///
    /// If no port can be bound.
    pub async fn start(replies: Vec<Reply>) -> Self {
        Self::start_with(in_order(replies)).await
    }

    /// Starts a server that decides on each answer from the body of the request and the number of those it has
    /// answered from the script before.
    ///
    /// # Panics
    ///
    /// If no port can be bound.
    #[expect(clippy::unused_async, reason = "it belongs into a runtime, which it needs to serve")]
    pub async fn start_with(script: impl FnMut(&Value, usize) -> Reply + Send + 'static) -> Self {
        let record = Record::shared(Box::new(script));
        let (listener, address) = bind();
        let task = tokio::spawn(serve(listener, Arc::clone(&record)));
        Self { address, record, runs_on: RunsOn::Task(task) }
    }

    /// [`ScriptedModel::start`] for tests without a runtime: the server has a thread of its own.
    ///
    /// # Panics
    ///
    /// If no port can be bound or no thread started.
    pub fn start_blocking(replies: Vec<Reply>) -> Self {
        Self::start_blocking_with(in_order(replies))
    }

    /// [`ScriptedModel::start_with`] for tests without a runtime: the server has a thread of its own.
    ///
    /// # Panics
    ///
    /// If no port can be bound or no thread started.
    pub fn start_blocking_with(script: impl FnMut(&Value, usize) -> Reply + Send + 'static) -> Self {
        let record = Record::shared(Box::new(script));
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let (send_address, address) = std::sync::mpsc::channel();
        let served = Arc::clone(&record);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let (listener, address) = bind();
                send_address.send(address).expect("the starter waits for the address");
                tokio::select! {
                    () = serve(listener, served) => {}
                    // Nothing is ever sent: the sender is dropped with the server.
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv().expect("the server's thread binds a port");
        Self { address, record, runs_on: RunsOn::Thread { stop: Some(stop), thread: Some(thread) } }
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
        lock(&self.record).requests.clone()
    }

    /// The `Authorization` header of each request, in order.
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.header("authorization")
    }

    /// A header of each request, in order.
    pub fn header(&self, name: &str) -> Vec<Option<String>> {
        let value = |headers: &HeaderMap| headers.get(name)?.to_str().ok().map(str::to_owned);
        lock(&self.record).headers.iter().map(value).collect()
    }

    /// How many connections brought the requests.
    pub fn connections(&self) -> usize {
        lock(&self.record).clients.len()
    }

    /// What was wrong with the requests; empty when nothing was.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.record).violations.clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        match &mut self.runs_on {
            RunsOn::Task(task) => task.abort(),
            RunsOn::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    // A panic of that thread has already failed what the test waited for.
                    let _ = thread.join();
                }
            }
        }
    }
}

impl Record {
    fn shared(script: Script) -> Shared {
        let (requests, headers, violations) = (Vec::new(), Vec::new(), Vec::new());
        let (memory, clients) = (Memory::default(), HashSet::new());
        Arc::new(Mutex::new(Self { script, answered: 0, requests, headers, violations, memory, clients }))
    }

    /// Takes a request in; the answer is the script's, or the explanation of what is wrong with it.
    fn answer(&mut self, protocol: Protocol, path: &str, body: &Value, headers: HeaderMap) -> Reply {
        let number = self.requests.len();
        self.requests.push(body.clone());
        self.headers.push(headers);
        let wrong = protocol.violations(path, body, &self.memory);
        if wrong.is_empty() {
            let answered = self.answered;
            self.answered += 1;
            return (self.script)(body, answered);
        }
        let explanation = format!("the request breaks the grammar: {}", wrong.join("; "));
        self.violations.extend(wrong.into_iter().map(|violation| format!("request {number}: {violation}")));
        Reply::status(400, error_body(&explanation))
    }
}

fn in_order(replies: Vec<Reply>) -> impl FnMut(&Value, usize) -> Reply + Send {
    let mut replies = VecDeque::from(replies);
    move |_, answered| {
        let used_up = || {
            let message = format!("the script is used up: it has {answered} replies and this is one request more");
            Reply::status(500, error_body(&message))
        };
        replies.pop_front().unwrap_or_else(used_up)
    }
}

fn bind() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    // Each frame goes out when it is written, as with a provider: a short one would otherwise wait for the client's
    // acknowledgement of the one before, 40 ms on a connection that is used again. Accepted connections inherit it.
    socket.set_nodelay(true).expect("a socket that does not wait");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let listener = socket.listen(1024).expect("a listener");
    let address = listener.local_addr().expect("a bound listener has an address");
    (listener, address)
}

async fn serve(listener: TcpListener, record: Shared) {
    let app = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(record);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    // Serving ends only with the task or the thread that owns it.
    let _ = axum::serve(listener, app).await;
}

async fn answer(
    State(record): State<Shared>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    lock(&record).clients.insert(client);
    let refuse =
        |status, explanation: &str| respond(status, "application/json", &[], HttpBody::from(error_body(explanation)));
    let Some(protocol) = Protocol::of(uri.path()) else {
        return refuse(StatusCode::NOT_FOUND, "nothing is spoken here");
    };
    let body = match serde_json::from_slice::<Value>(&body) {
        Ok(body) => body,
        Err(error) => {
            let explanation = format!("the body is not JSON: {error}");
            lock(&record).violations.push(explanation.clone());
            return refuse(StatusCode::BAD_REQUEST, &explanation);
        }
    };
    let reply = lock(&record).answer(protocol, uri.path(), &body, headers);
    let status = |code| StatusCode::from_u16(code).expect("a status code a server can send");
    match &reply.body {
        Body::Status { code, body } => {
            respond(status(*code), "application/json", &reply.headers, HttpBody::from(body.clone()))
        }
        Body::Overflow => {
            let (code, body) = protocol.overflow();
            respond(status(code), "application/json", &reply.headers, HttpBody::from(body))
        }
        Body::Answer(_) | Body::Cut { .. } | Body::Failed { .. } | Body::Raw { .. } => {
            let frames = protocol.frames(uri.path(), &body, &reply.body, &mut lock(&record).memory);
            respond(StatusCode::OK, protocol.content_type(), &reply.headers, stream(&reply, frames))
        }
    }
}

fn stream(reply: &Reply, frames: Vec<String>) -> HttpBody {
    let is_cut = matches!(reply.body, Body::Cut { .. });
    let mut gate = reply.gate.clone();
    HttpBody::from_stream(async_stream::stream! {
        for frame in frames {
            yield Ok(Bytes::from(frame));
            // Without this, hyper may put several frames into one chunk and break off before they are out.
            tokio::task::yield_now().await;
            if let Some(gate) = gate.take() {
                gate.pass().await;
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

fn lock(record: &Shared) -> MutexGuard<'_, Record> {
    record.lock().expect("a script that panicked has failed its test")
}
