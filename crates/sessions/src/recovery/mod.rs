//! Recovery of sessions after a crash.
//!
//! # Design
//!
//! An event in flight is orphaned when the process that owns it is dead, or does not serve it any more because its turn
//! lost the lease. The session actor that holds the lease of the
//! session ends the interrupted runs and decides about their events, those of one run together:
//!
//! - Events resume, which means they get a turn again, if that cannot repeat an effect.
//! - Events are given up, with a notice to the user, if a tool or an action may have had an effect, if the runner acts
//!   outside the host, after too many attempts, or if they were in flight in a restored copy.
//! - Events are settled with the outcome they would have had: a requested cancellation, or a message that was not
//!   addressed to the bot.
//!
//! # Invariants
//!
//! - The end of the runs, the adoption of resumed events and the outcomes of all others are one commit under the fence
//!   of the lease. An event that another process settled or adopted meanwhile fails the commit, and recovery starts over.
//! - Only a process of the same workspace recovers a session, because its tools work in that workspace.
//! - The run of an event that another process has to recover stays as it is.

mod interrupted_runs;
mod recover;
mod unaddressed;

use std::sync::Arc;

use capstan_delivery::{ChannelDirectory, Outbox, OwnerRegistry as _};
use capstan_protocol::{Clock, TapeName, WorkspaceId};
use capstan_runs::{ActiveRuns, ToolCatalog};
use capstan_tape::{EventAcceptance, Fence, InFlightEvent, StoreError, TapeRecord, TapeRepository, TapeSlice};

use self::recover::RecoveryResult;
use crate::closing::TurnCloser;
use crate::intake_policy::IntakePolicy;
use crate::lease::LeaseOwner;
use crate::unserved_events::UnservedEvents;

/// Recovers the sessions of a workspace: decides about the orphaned events and runs of dead processes.
pub(crate) struct SessionRecovery {
    pub(crate) tapes: TapeRepository,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) channels: ChannelDirectory,
    pub(crate) intake_policy: IntakePolicy,
    pub(crate) owner: LeaseOwner,
    pub(crate) unserved_events: UnservedEvents,
    pub(crate) clock: Clock,
    pub(crate) active_runs: ActiveRuns,
    pub(crate) tools: Arc<ToolCatalog>,
    pub(crate) closer: Arc<TurnCloser>,
    pub(crate) outbox: Outbox,
}

impl SessionRecovery {
    /// Ends the interrupted runs of a session, and returns the events to resume, in order and grouped by turn.
    ///
    /// The caller holds the lease of the session, so none of those runs is active anywhere.
    pub(crate) async fn recover_session(&self, tape: &TapeName, fence: &Fence) -> RecoveryResult {
        recover::recover_session(self, tape, fence).await
    }

    /// Returns true if this process has to recover an event: it owns the event and does not serve it any more, or the owner
    /// is dead, and its channel listens here or its caller
    /// has disconnected. An event whose source is not a channel was submitted for a reply on another channel; every
    /// process with that channel may recover it.
    pub(crate) async fn is_orphaned_event(&self, event: &InFlightEvent) -> Result<bool, StoreError> {
        let source = &event.key.source;
        if event.owner.as_deref() == Some(self.owner.name()) && self.unserved_events.contains(&event.key) {
            return Ok(true);
        }
        if !self.owner.has_orphans_of(event.owner.as_deref()) {
            return Ok(false);
        }
        let is_served = self.channels.can_deliver_orphaned(source);
        if is_served || self.channels.get(source).is_some() {
            return Ok(is_served);
        }
        let entry = self.tapes.read_any_generation(&event.tape, &TapeSlice::single(event.entry)).await?.pop();
        let accepted = entry.as_ref().and_then(EventAcceptance::from_entry);
        // An event that cannot be read any more has no reply channel, and any process may settle it.
        Ok(accepted.is_none_or(|accepted| self.channels.get(&accepted.event.channel()).is_some()))
    }

    /// Events in flight of a tape: those that this process has to recover, and the others. Their number is bounded by the
    /// queue size of a session.
    pub(crate) async fn partition_orphaned(
        &self,
        tape: &TapeName,
    ) -> Result<(Vec<InFlightEvent>, Vec<InFlightEvent>), StoreError> {
        let (mut orphaned, mut others) = (Vec::new(), Vec::new());
        let mut events = self.tapes.store().in_flight_events(Some(tape));
        while let Some(event) = events.next().await? {
            let part = if self.is_orphaned_event(&event).await? { &mut orphaned } else { &mut others };
            part.push(event);
        }
        Ok((orphaned, others))
    }

    /// Returns true if a tape belongs to the workspace of this host. Tools of a session work in its workspace, so only a
    /// host of that workspace may recover the session.
    pub(crate) fn is_workspace_tape(&self, record: &TapeRecord) -> bool {
        record.workspace.as_ref() == Some(&self.workspace_id)
    }
}
