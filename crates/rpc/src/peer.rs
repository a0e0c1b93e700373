//! One side of a connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use capstan_protocol::plugin_protocol::{PluginConnectionLimits, PluginRequestCancel, PluginStreamCredit, method};
use futures::FutureExt as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::credit::CreditBalance;
use crate::error::error_code;
use crate::message::{InputMessage, encode_answer, encode_call, parse_message};
use crate::outgoing_queue::{EnqueueError, OutgoingQueue};
use crate::request_table::{PendingRequests, RequestAdmission, ServedRequests};
use crate::stream_queue::{StreamDelivery, StreamQueue};
use crate::{
    FrameReader, IncomingNotification, IncomingRequest, InputFrame, RequestId, RpcCallError, RpcCloseReason, RpcError,
    RpcService, nesting_depth,
};

/// Maximum bytes of lines that are written together.
const WRITE_BATCH_BYTES: usize = 64 * 1024;
/// Bad lines of each kind of problem that are reported one by one.
const MAX_REPORTED_BAD_LINES: u64 = 10;

/// Limits and deadlines of a connection.
#[derive(Debug, Clone)]
pub struct RpcOptions {
    /// Limits of this side.
    pub limits: PluginConnectionLimits,
    /// Bytes that wait to be written before requests and items wait.
    pub queue_bytes: usize,
    /// Time after which a side that does not read has stalled.
    pub stall_timeout: Duration,
    /// Maximum number of lines that are no messages.
    pub max_bad_lines: u64,
    /// Maximum number of such lines in [`bad_line_period`](Self::bad_line_period).
    pub max_bad_line_burst: u64,
    /// Period of a burst.
    pub bad_line_period: Duration,
}

impl Default for RpcOptions {
    fn default() -> Self {
        Self {
            limits: PluginConnectionLimits::default(),
            queue_bytes: 16 * 1024 * 1024,
            stall_timeout: Duration::from_mins(1),
            max_bad_lines: 1000,
            max_bad_line_burst: 100,
            bad_line_period: Duration::from_secs(10),
        }
    }
}

/// Numbers of messages and anomalies of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RpcCounters {
    /// Lines received.
    pub lines: u64,
    /// Lines that are no messages.
    pub bad_lines: u64,
    /// Answers without a request.
    pub stray_answers: u64,
    /// Items and credit of unknown or ended streams.
    pub stray_items: u64,
    /// Requests that were refused because too many were being served.
    pub overloads: u64,
}

#[derive(Default)]
struct AtomicCounters {
    lines: AtomicU64,
    bad_lines: AtomicU64,
    stray_answers: AtomicU64,
    stray_items: AtomicU64,
    overloads: AtomicU64,
}

/// State that the tasks of a connection share.
pub(crate) struct PeerShared {
    options: RpcOptions,
    queue: OutgoingQueue,
    pending: PendingRequests,
    served: ServedRequests,
    incoming: Mutex<HashMap<Arc<str>, Arc<StreamQueue>>>,
    outgoing: Mutex<HashMap<Arc<str>, Arc<CreditBalance>>>,
    /// Limits of the other side, and its room for requests.
    remote: Mutex<(PluginConnectionLimits, Arc<Semaphore>)>,
    close_token: CancellationToken,
    close_reason: OnceLock<RpcCloseReason>,
    counters: AtomicCounters,
    tasks: TaskTracker,
}

/// One side of a connection. Cheap to clone. The connection ends with [`close`](Self::close), or with the input.
#[derive(Clone)]
pub struct RpcPeer {
    shared: Arc<PeerShared>,
}

impl RpcPeer {
    /// Starts to read and write. `make_service` creates the service of this side.
    pub fn start(
        input: impl AsyncRead + Unpin + Send + 'static,
        output: impl AsyncWrite + Unpin + Send + 'static,
        options: RpcOptions,
        make_service: impl FnOnce(&RpcPeer) -> Arc<dyn RpcService>,
    ) -> Self {
        let remote = PluginConnectionLimits::default();
        let slots = Arc::new(Semaphore::new(remote.max_concurrent_requests));
        let shared = Arc::new(PeerShared {
            queue: OutgoingQueue::new(options.queue_bytes),
            options,
            pending: PendingRequests::default(),
            served: ServedRequests::default(),
            incoming: Mutex::default(),
            outgoing: Mutex::default(),
            remote: Mutex::new((remote, slots)),
            close_token: CancellationToken::new(),
            close_reason: OnceLock::new(),
            counters: AtomicCounters::default(),
            tasks: TaskTracker::new(),
        });
        let peer = Self { shared: Arc::clone(&shared) };
        let service = make_service(&peer);
        let reader = FrameReader::new(input, shared.options.limits.max_frame_bytes);
        shared.tasks.spawn(read_messages(Arc::clone(&shared), reader, service));
        peer.shared.tasks.spawn(write_lines(shared, output));
        peer
    }

    /// Sets the limits of the other side, which it has announced.
    pub fn set_remote_limits(&self, limits: PluginConnectionLimits) {
        let slots = Arc::new(Semaphore::new(limits.max_concurrent_requests.clamp(1, Semaphore::MAX_PERMITS)));
        *lock(&self.shared.remote) = (limits, slots);
    }

    /// Sends a request and waits for its answer. A request that is given up is cancelled.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &impl Serialize,
        deadline: Option<Duration>,
    ) -> Result<T, RpcCallError> {
        let exchange = self.exchange(method, params);
        let raw = match deadline {
            None => exchange.await?,
            Some(deadline) => timeout(deadline, exchange).await.map_err(|_| RpcCallError::DeadlineExceeded)??,
        };
        serde_json::from_str(raw.get()).map_err(|error| RpcCallError::Malformed { method, reason: error.to_string() })
    }

    async fn exchange(&self, method: &str, params: &impl Serialize) -> Result<Box<RawValue>, RpcCallError> {
        let shared = &self.shared;
        let slots = Arc::clone(&lock(&shared.remote).1);
        let closed = || RpcCallError::Closed(shared.close_reason());
        let _slot = tokio::select! {
            slot = slots.acquire_owned() => slot.map_err(|_| closed())?,
            () = shared.close_token.cancelled() => return Err(closed()),
        };
        let (sender, answer) = oneshot::channel();
        let id = shared.pending.register(sender);
        let mut guard = PendingGuard { shared, id, is_sent: false };
        // A connection that ended before the registration has dropped no answer.
        if shared.close_token.is_cancelled() {
            return Err(closed());
        }
        let line = shared.encode(Some(&RequestId::Number(id)), method, params)?;
        shared.push(line).await?;
        guard.is_sent = true;
        let answer = answer.await;
        guard.is_sent = false;
        answer.map_err(|_| closed())?.map_err(RpcCallError::Remote)
    }

    /// Sends a notification when there is room in the queue.
    pub async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), RpcCallError> {
        let line = self.shared.encode(None, method, params)?;
        self.shared.push(line).await
    }

    /// Sends a notification without waiting. For small ones, whose number something else bounds.
    pub fn notify_now(&self, method: &str, params: &impl Serialize) {
        self.shared.notify_now(method, params);
    }

    pub(crate) fn shared(&self) -> &Arc<PeerShared> {
        &self.shared
    }

    /// Delivers an item that came in a message of its own method. `line_bytes` is the length of its line.
    pub fn deliver(&self, stream: &str, item: Box<RawValue>, line_bytes: usize) -> StreamDelivery {
        self.shared.deliver(stream, item, line_bytes)
    }

    /// Gives credit to the sender of a stream that the caller accounts for.
    pub fn give_credit(&self, stream: &str, credit: u32) {
        self.shared.give_credit(stream, credit);
    }

    /// Closes the output once what waits is written. The other side reads the end of its input.
    pub fn close_output(&self) {
        self.shared.queue.close();
    }

    /// Ends the connection at once. The first reason counts.
    pub fn close(&self, reason: impl Into<String>) {
        self.shared.close(RpcCloseReason::Closed(reason.into()));
    }

    /// Waits for the end of the connection.
    pub async fn closed(&self) -> RpcCloseReason {
        self.shared.close_token.cancelled().await;
        self.shared.close_reason()
    }

    /// Returns true if the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.close_token.is_cancelled()
    }

    /// Waits until the tasks of a connection that has ended are done.
    pub async fn joined(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Numbers of messages and anomalies.
    pub fn counters(&self) -> RpcCounters {
        let AtomicCounters { lines, bad_lines, stray_answers, stray_items, overloads } = &self.shared.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RpcCounters {
            lines: load(lines),
            bad_lines: load(bad_lines),
            stray_answers: load(stray_answers),
            stray_items: load(stray_items),
            overloads: load(overloads),
        }
    }

    /// Number of requests of the other side that are being served.
    pub fn served_requests(&self) -> usize {
        self.shared.served.len()
    }
}

/// Cancels a request whose requester stops waiting.
struct PendingGuard<'a> {
    shared: &'a PeerShared,
    id: u64,
    is_sent: bool,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        if self.shared.pending.remove(self.id) && self.is_sent {
            self.shared.notify_now(method::REQUEST_CANCEL, &PluginRequestCancel { id: self.id.into() });
        }
    }
}

impl PeerShared {
    /// Encodes a call within the limits of the other side.
    pub(crate) fn encode(
        &self,
        id: Option<&RequestId>,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Vec<u8>, RpcCallError> {
        let line = encode_call(id, method, params).map_err(|_| RpcCallError::TooLarge)?;
        if self.fits(&line) { Ok(line) } else { Err(RpcCallError::TooLarge) }
    }

    fn fits(&self, line: &[u8]) -> bool {
        let limits = lock(&self.remote).0;
        line.len() <= limits.max_frame_bytes && nesting_depth(line) <= limits.max_frame_depth
    }

    pub(crate) async fn push(&self, line: Vec<u8>) -> Result<(), RpcCallError> {
        let pushed = tokio::select! {
            biased;
            () = self.close_token.cancelled() => Err(EnqueueError::Closed),
            pushed = self.queue.push(line) => pushed,
        };
        pushed.map_err(|_| RpcCallError::Closed(self.close_reason()))
    }

    fn push_now(&self, line: Vec<u8>) {
        if self.queue.push_now(line) == Err(EnqueueError::Full) {
            self.close(RpcCloseReason::Stalled);
        }
    }

    fn notify_now(&self, method: &str, params: &impl Serialize) {
        if let Ok(line) = self.encode(None, method, params) {
            self.push_now(line);
        }
    }

    pub(crate) fn give_credit(&self, stream: &str, credit: u32) {
        self.notify_now(method::STREAM_CREDIT, &PluginStreamCredit { stream: stream.to_owned(), credit });
    }

    fn answer(&self, id: &RequestId, result: &Result<Box<RawValue>, RpcError>) {
        let line = encode_answer(id, result.as_deref());
        if self.fits(&line) {
            self.push_now(line);
        } else {
            let error = RpcError::new(error_code::TOO_LARGE, "the answer exceeds the frame limit");
            self.push_now(encode_answer(id, Err(&error)));
        }
    }

    fn deliver(&self, stream: &str, item: Box<RawValue>, line_bytes: usize) -> StreamDelivery {
        let queue = lock(&self.incoming).get(stream).cloned();
        let delivery = queue.map_or(StreamDelivery::Unknown, |queue| queue.deliver(item, line_bytes));
        if delivery == StreamDelivery::Unknown {
            self.counters.stray_items.fetch_add(1, Ordering::Relaxed);
        }
        delivery
    }

    /// Adds a stream. Returns false if its name is in use. A stream of a connection that has ended ends at once.
    pub(crate) fn add_incoming(&self, name: Arc<str>, queue: Arc<StreamQueue>) -> bool {
        let mut streams = lock(&self.incoming);
        if self.close_token.is_cancelled() {
            queue.end();
        }
        add_stream(&mut streams, name, queue)
    }

    /// Adds a stream. Returns false if its name is in use. A stream of a connection that has ended ends at once.
    pub(crate) fn add_outgoing(&self, name: Arc<str>, balance: Arc<CreditBalance>) -> bool {
        let mut streams = lock(&self.outgoing);
        if self.close_token.is_cancelled() {
            balance.end();
        }
        add_stream(&mut streams, name, balance)
    }

    pub(crate) fn remove_incoming(&self, name: &str, queue: &Arc<StreamQueue>) {
        let mut streams = lock(&self.incoming);
        if streams.get(name).is_some_and(|present| Arc::ptr_eq(present, queue)) {
            streams.remove(name);
        }
    }

    pub(crate) fn remove_outgoing(&self, name: &str, balance: &Arc<CreditBalance>) {
        let mut streams = lock(&self.outgoing);
        if streams.get(name).is_some_and(|present| Arc::ptr_eq(present, balance)) {
            streams.remove(name);
        }
    }

    fn close(&self, reason: RpcCloseReason) {
        // The first reason counts.
        let _is_first = self.close_reason.set(reason);
        self.close_token.cancel();
        self.queue.close();
        self.pending.clear();
        lock(&self.incoming).values().for_each(|queue| queue.end());
        lock(&self.outgoing).values().for_each(|balance| balance.end());
    }

    pub(crate) fn close_reason(&self) -> RpcCloseReason {
        let closed = || RpcCloseReason::Closed("the connection is closing".to_owned());
        self.close_reason.get().cloned().unwrap_or_else(closed)
    }
}

fn add_stream<T>(streams: &mut HashMap<Arc<str>, Arc<T>>, name: Arc<str>, stream: Arc<T>) -> bool {
    match streams.entry(name) {
        Entry::Occupied(_) => false,
        Entry::Vacant(entry) => {
            entry.insert(stream);
            true
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the lines that are no messages.
struct BadLineLimit {
    burst: u64,
    burst_began: Instant,
}

/// Reads until the connection ends.
async fn read_messages<R: AsyncRead + Unpin>(
    shared: Arc<PeerShared>,
    mut reader: FrameReader<R>,
    service: Arc<dyn RpcService>,
) {
    let mut bad_lines = BadLineLimit { burst: 0, burst_began: Instant::now() };
    loop {
        let frame = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return,
            frame = reader.next_frame() => frame,
        };
        let problem = match frame {
            Err(error) => return shared.close(RpcCloseReason::ReadFailed(error.to_string())),
            Ok(None) => return shared.close(RpcCloseReason::InputEnded),
            Ok(Some(InputFrame::TooLong { bytes })) => {
                Err(format!("it has {bytes} bytes, more than {}", shared.options.limits.max_frame_bytes))
            }
            Ok(Some(InputFrame::Line(line))) => handle_line(&shared, &service, &line),
        };
        shared.counters.lines.fetch_add(1, Ordering::Relaxed);
        if let Err(problem) = problem {
            bad_lines.record(&shared, &service, &problem);
        }
        // Input that is always ready must not starve other tasks.
        tokio::task::consume_budget().await;
    }
}

impl BadLineLimit {
    fn record(&mut self, shared: &PeerShared, service: &Arc<dyn RpcService>, problem: &str) {
        let options = &shared.options;
        let total = shared.counters.bad_lines.fetch_add(1, Ordering::Relaxed) + 1;
        if total <= MAX_REPORTED_BAD_LINES {
            service.report(&format!("dropped a line that is no message: {problem}"));
        }
        if self.burst_began.elapsed() > options.bad_line_period {
            *self = Self { burst: 0, burst_began: Instant::now() };
        }
        self.burst += 1;
        if self.burst > options.max_bad_line_burst || total > options.max_bad_lines {
            shared.close(RpcCloseReason::BadLines(format!("because {problem}")));
        }
    }
}

fn handle_line(shared: &Arc<PeerShared>, service: &Arc<dyn RpcService>, line: &[u8]) -> Result<(), String> {
    let depth = nesting_depth(line);
    let max_depth = shared.options.limits.max_frame_depth;
    if depth > max_depth {
        return Err(format!("it is nested {depth} levels deep, more than {max_depth}"));
    }
    match parse_message(line) {
        Err(invalid) => {
            if let Some(id) = &invalid.id {
                shared.answer(id, &Err(RpcError::new(error_code::INVALID_REQUEST, invalid.reason.clone())));
            }
            Err(invalid.reason)
        }
        Ok(InputMessage::Answer { id, result }) => {
            if !shared.pending.answer(&id, result) {
                shared.counters.stray_answers.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(?id, "dropped an answer without a request");
            }
            Ok(())
        }
        Ok(InputMessage::Notification { method, params }) => {
            handle_notification(shared, service, IncomingNotification { method, params, line_bytes: line.len() });
            Ok(())
        }
        Ok(InputMessage::Request { id, method, params }) => {
            let request = IncomingRequest { id, method, params, line_bytes: line.len() };
            handle_request(shared, service, request)
        }
    }
}

#[derive(Deserialize)]
struct StreamItemParams {
    stream: String,
    item: Box<RawValue>,
}

fn handle_notification(shared: &PeerShared, service: &Arc<dyn RpcService>, notification: IncomingNotification) {
    match notification.method.as_str() {
        method::STREAM_ITEM => {
            if let Ok(StreamItemParams { stream, item }) = notification.parse() {
                shared.deliver(&stream, item, notification.line_bytes);
            }
        }
        method::STREAM_CREDIT => {
            let Ok(PluginStreamCredit { stream, credit }) = notification.parse() else { return };
            match lock(&shared.outgoing).get(stream.as_str()) {
                Some(balance) => balance.add(credit),
                None => drop(shared.counters.stray_items.fetch_add(1, Ordering::Relaxed)),
            }
        }
        method::REQUEST_CANCEL => {
            let id = notification.parse::<PluginRequestCancel>().ok().and_then(|it| RequestId::from_json(&it.id));
            if let Some(id) = id {
                shared.served.cancel(&id);
            }
        }
        _ => service.notify(notification),
    }
}

fn handle_request(
    shared: &Arc<PeerShared>,
    service: &Arc<dyn RpcService>,
    request: IncomingRequest,
) -> Result<(), String> {
    let id = request.id.clone();
    let max_counted = shared.options.limits.max_concurrent_requests;
    let cancel_token = match shared.served.admit(&id, service.may_nest(&request), max_counted) {
        RequestAdmission::Admitted(token) => token,
        RequestAdmission::Duplicate => return Err("its id is in use".to_owned()),
        RequestAdmission::Overloaded => {
            shared.counters.overloads.fetch_add(1, Ordering::Relaxed);
            shared.answer(&id, &Err(RpcError::new(error_code::OVERLOADED, "too many requests at a time")));
            return Ok(());
        }
    };
    // The service is called here, so that requests begin in the order of their arrival.
    let begun = std::panic::catch_unwind(AssertUnwindSafe(|| service.serve(request)));
    let shared = Arc::clone(shared);
    let tasks = shared.tasks.clone();
    tasks.spawn(async move {
        let internal = |_| RpcError::new(error_code::INTERNAL_ERROR, "the request failed inside the other side");
        let serving = async {
            match begun {
                Ok(future) => {
                    AssertUnwindSafe(future).catch_unwind().await.unwrap_or_else(|panic| Err(internal(panic)))
                }
                Err(panic) => Err(internal(panic)),
            }
        };
        let result = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return shared.served.finish(&id),
            () = cancel_token.cancelled() => Err(RpcError::new(error_code::CANCELLED, "cancelled")),
            result = serving => result,
        };
        // The id is free again before the other side can know it.
        shared.served.finish(&id);
        shared.answer(&id, &result);
    });
    Ok(())
}

/// Writes until the queue is closed and empty, or the connection ends.
async fn write_lines(shared: Arc<PeerShared>, mut output: impl AsyncWrite + Unpin) {
    let mut bytes = Vec::new();
    loop {
        let batch = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return,
            batch = shared.queue.pop_batch(WRITE_BATCH_BYTES) => batch,
        };
        let Some(batch) = batch else { break };
        bytes.clear();
        for line in &batch {
            bytes.extend_from_slice(&line.bytes);
            bytes.push(b'\n');
        }
        let written = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return,
            written = timeout(shared.options.stall_timeout, write_all(&mut output, &bytes)) => written,
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return shared.close(RpcCloseReason::WriteFailed(error.to_string())),
            Err(_) => return shared.close(RpcCloseReason::Stalled),
        }
        if bytes.capacity() > 2 * WRITE_BATCH_BYTES {
            bytes = Vec::new();
        }
    }
    let closed = tokio::select! {
        () = shared.close_token.cancelled() => return,
        closed = timeout(shared.options.stall_timeout, output.shutdown()) => closed,
    };
    if !matches!(closed, Ok(Ok(()))) {
        shared.close(RpcCloseReason::Stalled);
    }
}

async fn write_all(output: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    output.write_all(bytes).await?;
    output.flush().await
}
