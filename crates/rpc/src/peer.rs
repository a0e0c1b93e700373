//! One side of a connection.

mod message_reader;
mod message_writer;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use capstan_protocol::plugin_protocol::{PluginConnectionLimits, PluginRequestCancel, PluginStreamCredit, method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::credit::CreditBalance;
use crate::error::error_code;
use crate::message::{encode_answer, encode_call};
use crate::outgoing_queue::{EnqueueError, OutgoingQueue};
use crate::request_table::{PendingRequests, ServedRequests};
use crate::stream_queue::{StreamDelivery, StreamQueue};
use crate::{FrameReader, RequestId, RpcCallError, RpcCloseReason, RpcError, RpcService, nesting_depth};

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
        shared.tasks.spawn(message_reader::read_messages(Arc::clone(&shared), reader, service));
        peer.shared.tasks.spawn(message_writer::write_lines(shared, output));
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
        // Closed only with the connection.
        let slots = Arc::clone(&lock(&self.shared.remote).1);
        let exchange = async {
            let closed = || RpcCallError::Closed(self.shared.close_reason());
            let _slot = tokio::select! {
                slot = slots.acquire() => slot.map_err(|_| closed())?,
                () = self.shared.close_token.cancelled() => return Err(closed()),
            };
            self.exchange(method, params).await
        };
        let raw = match deadline {
            None => exchange.await?,
            Some(deadline) => timeout(deadline, exchange).await.map_err(|_| RpcCallError::DeadlineExceeded)??,
        };
        serde_json::from_str(raw.get()).map_err(|error| RpcCallError::Malformed { method, reason: error.to_string() })
    }

    /// Sends a request that does not count toward the limit of the other side, because it lasts as long as the consumer of
    /// its stream takes.
    pub async fn request_uncounted<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &impl Serialize,
    ) -> Result<T, RpcCallError> {
        let raw = self.exchange(method, params).await?;
        serde_json::from_str(raw.get()).map_err(|error| RpcCallError::Malformed { method, reason: error.to_string() })
    }

    async fn exchange(&self, method: &str, params: &impl Serialize) -> Result<Box<RawValue>, RpcCallError> {
        let shared = &self.shared;
        let closed = || RpcCallError::Closed(shared.close_reason());
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
