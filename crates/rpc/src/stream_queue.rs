//! Items of a stream that this side receives, bounded by the credit that it gives.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use capstan_protocol::plugin_protocol::credit_cost;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::CreditAccount;

/// The sender exceeded its credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it sent an item without credit")]
pub struct StreamViolation;

/// Result of delivering an item to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDelivery {
    /// The item waits to be consumed.
    Queued,
    /// There is no such stream, or it has ended.
    Unknown,
    /// The sender had no credit. The stream ends.
    Violation,
}

pub(crate) struct StreamQueue {
    state: Mutex<StreamState>,
    changed: Notify,
}

struct StreamState {
    items: VecDeque<(Box<RawValue>, u32)>,
    account: CreditAccount,
    is_ended: bool,
    is_violated: bool,
}

impl StreamQueue {
    pub(crate) fn new(credit: u32) -> Self {
        let account = CreditAccount::new(credit);
        let state = StreamState { items: VecDeque::new(), account, is_ended: false, is_violated: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    pub(crate) fn deliver(&self, item: Box<RawValue>, line_bytes: usize) -> StreamDelivery {
        let cost = credit_cost(line_bytes);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let delivery = if state.is_ended {
            return StreamDelivery::Unknown;
        } else if state.account.charge(cost) {
            state.items.push_back((item, cost));
            StreamDelivery::Queued
        } else {
            (state.is_ended, state.is_violated) = (true, true);
            StreamDelivery::Violation
        };
        drop(state);
        self.changed.notify_one();
        delivery
    }

    /// Next item, with the credit to give back now; `None` at the end.
    pub(crate) async fn take(&self) -> Option<Result<(Box<RawValue>, Option<u32>), StreamViolation>> {
        loop {
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((item, cost)) = state.items.pop_front() {
                    let credit = state.account.consume(cost).filter(|_| !state.is_ended);
                    return Some(Ok((item, credit)));
                }
                if std::mem::take(&mut state.is_violated) {
                    return Some(Err(StreamViolation));
                }
                if state.is_ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Ends the stream; items that were delivered can still be consumed.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_ended = true;
        self.changed.notify_one();
    }
}
