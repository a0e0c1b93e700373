//! A turn that is going on, as its session and its run reach it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_protocol::{Binding, EntryId, EventKey};
use tokio_util::sync::CancellationToken;

use crate::journal::Journal;
use crate::steering::Steering;

/// A turn that is going on. The pipeline passes it to the model stage.
pub struct ActiveTurn {
    /// Journal that its run writes to.
    pub journal: Arc<Journal>,
    /// Cancels the turn.
    pub cancel_token: CancellationToken,
    /// Events that arrive meanwhile.
    pub steering: Arc<Steering>,
    /// The binding it runs under; without one nothing is done.
    pub binding: Option<Arc<Binding>>,
    /// The newest entry of the tape that tells of one of its events.
    pub begins_after: EntryId,
    /// Its events, the lead first, with the entries of their messages where an interrupted run ingested them.
    pub events: Vec<(EventKey, Option<EntryId>)>,
    /// A message of the same session interrupted the turn: its sender need not be told that the turn was cancelled.
    pub is_interrupted: AtomicBool,
}
