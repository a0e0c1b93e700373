//! Active turns: the part of a turn that its session and its run share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_protocol::{Binding, EntryId, EventKey, EventOrigin};
use tokio_util::sync::CancellationToken;

use crate::journal::Journal;
use crate::steering::Steering;

/// An active turn. The pipeline passes it to the model stage.
pub struct ActiveTurn {
    /// Journal that its run writes to.
    pub journal: Arc<Journal>,
    /// Cancels the turn.
    pub cancel_token: CancellationToken,
    /// Events that arrive during the turn.
    pub steering: Arc<Steering>,
    /// Binding of the turn. Without one, no run is started.
    pub binding: Option<Arc<Binding>>,
    /// Origin of its events.
    pub origin: EventOrigin,
    /// Newest entry of the tape that records one of its events.
    pub begins_after: EntryId,
    /// Its events, the lead first, each with the entry of its message if an interrupted run ingested it.
    pub events: Vec<(EventKey, Option<EntryId>)>,
    /// A message of the same session interrupted the turn, so its sender is not notified of the cancellation.
    pub is_interrupted: AtomicBool,
}
