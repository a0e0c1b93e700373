//! A person in one session, as at a terminal: what was left there is taken up, and what goes on there can be cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::{ChannelName, SessionId, TapeName};
use capstan_tape::{TapeAddress, tape_name};
use tokio_util::sync::CancellationToken;

use crate::{Host, HostError};

impl Host {
    /// Lets a channel serve one session: what dead processes left there is taken up, and shown on the channel. Other
    /// sessions are left to whoever [listens](Self::listen).
    pub async fn attend_session(&self, channel: &ChannelName, session: &SessionId) -> Result<(), HostError> {
        let engine = &self.engine;
        engine.services.channels.mark_listening(channel);
        engine.outbox.adopt_orphaned_messages().await?;
        let tape = self.session_tape_name(session);
        let (left, _) = engine.partition_orphaned(&tape).await?;
        if !left.is_empty() {
            engine.reserve_session(&tape)?.request_recovery(left.len());
        }
        Ok(())
    }

    /// Cancels the turn that goes on in a session in this process: it ends with its outcome recorded, and what waits
    /// has its turn. Says whether there was one.
    pub fn cancel_session_turn(&self, session: &SessionId) -> bool {
        self.engine.running_turns.cancel(&self.session_tape_name(session))
    }

    fn session_tape_name(&self, session: &SessionId) -> TapeName {
        let workspace = self.engine.services.workspace_id.clone();
        tape_name(&TapeAddress { workspace, session: session.clone() })
    }
}

/// The turns that go on in this process, one for each session, and how to end them.
#[derive(Debug, Default, Clone)]
pub(crate) struct RunningTurns(Arc<Mutex<HashMap<TapeName, CancellationToken>>>);

/// A turn that goes on until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningTurnGuard {
    turns: RunningTurns,
    tape: TapeName,
}

impl Drop for RunningTurnGuard {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.tape);
    }
}

impl RunningTurns {
    pub(crate) fn register(&self, tape: &TapeName, cancelled: CancellationToken) -> RunningTurnGuard {
        self.lock().insert(tape.clone(), cancelled);
        RunningTurnGuard { turns: self.clone(), tape: tape.clone() }
    }

    fn cancel(&self, tape: &TapeName) -> bool {
        self.lock().get(tape).inspect(|cancelled| cancelled.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TapeName, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
