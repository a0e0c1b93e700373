//! A turn that is going on, as its session and its run reach it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_protocol::{Binding, EntryId, EventKey};
use tokio_util::sync::CancellationToken;

use super::steering::Steering;
use crate::turns::journal::Journal;

/// A turn that is going on. The pipeline passes it to the model stage.
pub(crate) struct ActiveTurn {
    pub(crate) journal: Arc<Journal>,
    pub(crate) cancel_token: CancellationToken,
    /// Events that arrive meanwhile.
    pub(crate) steering: Arc<Steering>,
    /// The binding it runs under; without one nothing is done.
    pub(crate) binding: Option<Arc<Binding>>,
    /// The newest entry of the tape that tells of one of its events.
    pub(crate) begins_after: EntryId,
    /// Its events, the lead first, with the entries of their messages where an interrupted run ingested them.
    pub(crate) events: Vec<(EventKey, Option<EntryId>)>,
    /// A message of the same session interrupted the turn: its sender need not be told that the turn was cancelled.
    pub(crate) is_interrupted: AtomicBool,
}
