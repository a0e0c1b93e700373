//! Requests that wait for their answer, and requests that are being served.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{RequestId, RpcError};

/// Maximum number of requests that are served at a time and do not count toward the limit.
const MAX_NESTING_REQUESTS: usize = 16 * 1024;

type AnswerSender = oneshot::Sender<Result<Box<RawValue>, RpcError>>;

/// Own requests that wait for their answer.
#[derive(Default)]
pub(crate) struct PendingRequests {
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, AnswerSender>>,
}

impl PendingRequests {
    /// Registers a request and returns its id.
    pub(crate) fn register(&self, sender: AnswerSender) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        id
    }

    /// Removes a request. Returns true if it was waiting.
    pub(crate) fn remove(&self, id: u64) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id).is_some()
    }

    /// Passes an answer on. Returns false if no request with this id is waiting.
    pub(crate) fn answer(&self, id: &RequestId, result: Result<Box<RawValue>, RpcError>) -> bool {
        let RequestId::Number(id) = id else { return false };
        let sender = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        // A requester that has stopped waiting removes its request itself.
        sender.is_some_and(|sender| sender.send(result).is_ok())
    }

    /// Drops all requests: their requesters learn that the connection has ended.
    pub(crate) fn clear(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Admission of a request of the other side.
pub(crate) enum RequestAdmission {
    Admitted(CancellationToken),
    /// The id is in use.
    Duplicate,
    /// Too many requests are being served.
    Overloaded,
}

/// Requests of the other side that are being served.
#[derive(Default)]
pub(crate) struct ServedRequests {
    state: Mutex<ServedState>,
}

#[derive(Default)]
struct ServedState {
    requests: HashMap<RequestId, (CancellationToken, bool)>,
    counted: usize,
}

impl ServedRequests {
    pub(crate) fn admit(&self, id: &RequestId, may_nest: bool, max_counted: usize) -> RequestAdmission {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.requests.contains_key(id) {
            return RequestAdmission::Duplicate;
        }
        let is_full = if may_nest {
            state.requests.len() - state.counted >= MAX_NESTING_REQUESTS
        } else {
            state.counted >= max_counted
        };
        if is_full {
            return RequestAdmission::Overloaded;
        }
        state.counted += usize::from(!may_nest);
        let token = CancellationToken::new();
        state.requests.insert(id.clone(), (token.clone(), may_nest));
        RequestAdmission::Admitted(token)
    }

    pub(crate) fn finish(&self, id: &RequestId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, may_nest)) = state.requests.remove(id) {
            state.counted -= usize::from(!may_nest);
        }
    }

    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some((token, _)) = self.state.lock().unwrap_or_else(PoisonError::into_inner).requests.get(id) {
            token.cancel();
        }
    }

    /// Number of requests that are being served.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests.len()
    }
}
