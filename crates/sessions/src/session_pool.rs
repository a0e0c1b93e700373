//! Pool of session actors.

use std::sync::Arc;

use capstan_protocol::TapeName;

use crate::HostError;
use crate::active_sessions::SessionReservation;
use crate::session_actor::{SessionActor, SessionParts};

/// Starts session actors on demand. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionPool {
    pub(crate) parts: Arc<SessionParts>,
    /// Maximum number of queued events of one session.
    pub(crate) max_queued_events: usize,
}

impl SessionPool {
    /// Reserves a session, and starts its actor if it has none.
    pub(crate) fn reserve(&self, tape: &TapeName) -> Result<SessionReservation, HostError> {
        let lifecycle = &self.parts.lifecycle;
        if lifecycle.stop_token.is_cancelled() {
            return Err(HostError::Stopping);
        }
        let claim = || self.parts.leases.owner.claim(tape);
        let (reservation, start) = self.parts.sessions.reserve(tape, claim, self.max_queued_events);
        if let Some(start) = start {
            let actor = SessionActor::new(Arc::clone(&self.parts), start).run();
            lifecycle.tasks.spawn(lifecycle.session_tasks.track_future(actor));
        }
        Ok(reservation)
    }

    /// Returns true if an active session has a turn to run; `None` if the session is not active.
    pub(crate) fn is_busy(&self, tape: &TapeName) -> Option<bool> {
        self.parts.sessions.is_busy(tape)
    }
}
