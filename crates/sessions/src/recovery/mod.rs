//! Recovery of sessions after a crash.

mod interrupted_runs;
mod recover;
mod unaddressed;

use std::sync::Arc;

use capstan_delivery::{ChannelDirectory, Outbox, RowOwner as _};
use capstan_protocol::{Clock, TapeName, WorkspaceId};
use capstan_runs::{ActiveRuns, ToolCatalog};
use capstan_tape::{EventAcceptance, Fence, InFlightEvent, StoreError, TapeRecord, TapeRepository, TapeSlice};

use self::recover::RecoveredEvents;
use crate::closing::TurnCloser;
use crate::intake_policy::IntakePolicy;
use crate::lease::LeaseOwner;

/// Recovers the sessions of a workspace: decides about the events and runs that dead processes left.
pub(crate) struct SessionRecovery {
    pub(crate) tapes: TapeRepository,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) channels: ChannelDirectory,
    pub(crate) intake_policy: IntakePolicy,
    pub(crate) owner: LeaseOwner,
    pub(crate) clock: Clock,
    pub(crate) active_runs: ActiveRuns,
    pub(crate) tools: Arc<ToolCatalog>,
    pub(crate) closer: Arc<TurnCloser>,
    pub(crate) outbox: Outbox,
}

impl SessionRecovery {
    /// Ends the runs that a dead process left on a session, and returns the events that get a turn again: those of one
    /// run together, in order.
    ///
    /// The caller holds the lease of the session, so none of those runs is active anywhere.
    pub(crate) async fn recover_session(&self, tape: &TapeName, fence: &Fence) -> RecoveredEvents {
        recover::recover_session(self, tape, fence).await
    }

    /// Whether a dead process left this event, and it is for this one to go on with it: its channel listens here, or its
    /// caller is gone. Where its source is no channel, it was fed in to be answered on another: nobody listens for it, so
    /// it is anybody's who knows that one.
    pub(crate) async fn is_orphaned_event(&self, event: &InFlightEvent) -> Result<bool, StoreError> {
        let source = &event.key.source;
        if !self.owner.is_orphaned(event.owner.as_deref()) {
            return Ok(false);
        }
        let is_served = self.channels.can_deliver_orphaned(source);
        if is_served || self.channels.get(source).is_some() {
            return Ok(is_served);
        }
        let told = self.tapes.read_any_generation(&event.tape, &TapeSlice::single(event.entry)).await?.pop();
        let told = told.as_ref().and_then(EventAcceptance::from_entry);
        // One that cannot be read any more has nobody to answer.
        Ok(told.is_none_or(|told| self.channels.get(&told.event.channel()).is_some()))
    }

    /// Events of a tape without an outcome: those that a dead process left to this one, and the others. A session has no
    /// more of them than may wait in it.
    pub(crate) async fn partition_orphaned(
        &self,
        tape: &TapeName,
    ) -> Result<(Vec<InFlightEvent>, Vec<InFlightEvent>), StoreError> {
        let (mut left, mut others) = (Vec::new(), Vec::new());
        let mut events = self.tapes.store().in_flight_events(Some(tape));
        while let Some(event) = events.next().await? {
            let part = if self.is_orphaned_event(&event).await? { &mut left } else { &mut others };
            part.push(event);
        }
        Ok((left, others))
    }

    /// Tools of a session work in its workspace, so only a host of that workspace may go on with it.
    pub(crate) fn is_workspace_tape(&self, record: &TapeRecord) -> bool {
        record.workspace.as_ref() == Some(&self.workspace_id)
    }
}
