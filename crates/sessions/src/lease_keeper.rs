//! Acquires and renews the leases of sessions.

use std::time::Duration;

use capstan_protocol::{Clock, TapeName, Timestamp};
use capstan_tape::{Batch, Fact, Fence, StoreError, TapeRepository};
use capstan_turn::TurnError;
use tokio_util::sync::CancellationToken;

use crate::lease::{LeaseClaim, LeaseOwner};

/// How often a waiting turn looks whether its session has become free.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Acquires and renews leases for this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LeaseKeeper {
    pub(crate) tapes: TapeRepository,
    pub(crate) owner: LeaseOwner,
    pub(crate) clock: Clock,
    /// Timeout of a run, which a lease outlasts.
    pub(crate) run_timeout: Duration,
    /// Timeout of the wait for a session that another process works on.
    pub(crate) session_wait_timeout: Duration,
}

impl LeaseKeeper {
    /// Claim of a session actor to the lease of its session.
    pub(crate) fn claim(&self, tape: &TapeName) -> LeaseClaim {
        self.owner.claim(tape)
    }

    /// Whether a process, this one included, holds the lease of a session.
    pub(crate) async fn is_held(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let lease = self.tapes.store().lease(tape).await?;
        Ok(lease.is_some_and(|lease| self.owner.is_held(&lease, self.clock.now())))
    }

    /// The fact that takes a lease that is free, or makes one's own last longer; whether another's is void is not
    /// looked at.
    pub(crate) fn renewal_fact(&self, claim: &LeaseClaim) -> Fact {
        let mut fact = claim.take_fact(None, self.clock.now(), self.run_timeout);
        if let Fact::TakeLease { now, .. } = &mut fact {
            // Before any lease ends: where nobody was looked at, time alone must not take it from one who may be alive.
            *now = Timestamp::from_millis(0);
        }
        fact
    }

    /// The fact that takes a session's lease if it can be had now.
    pub(crate) async fn lease_fact(&self, claim: &LeaseClaim) -> Result<Fact, StoreError> {
        let held = self.tapes.store().lease(claim.tape()).await?;
        Ok(claim.take_fact(held.as_ref(), self.clock.now(), self.run_timeout))
    }

    async fn try_acquire_lease(&self, claim: &LeaseClaim) -> Result<Option<Fence>, StoreError> {
        let mut batch = Batch::new();
        batch.push(self.lease_fact(claim).await?);
        let committed = self.tapes.store().commit(batch).await?;
        Ok(claim.fence(committed.outputs.first()))
    }

    /// Whether another process holds the lease of a session.
    pub(crate) async fn is_held_elsewhere(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let lease = self.tapes.store().lease(tape).await?;
        let now = self.clock.now();
        Ok(lease.is_some_and(|lease| self.owner.is_held_elsewhere(&lease, now)))
    }

    /// Waits until no other process works on a session, as long as a caller is made to wait. Says whether that is so.
    pub(crate) async fn wait_until_not_held_elsewhere(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let looks = async {
            while self.is_held_elsewhere(tape).await? {
                tokio::time::sleep(LEASE_POLL_INTERVAL).await;
            }
            Ok(true)
        };
        tokio::time::timeout(self.session_wait_timeout, looks).await.unwrap_or(Ok(false))
    }

    /// Waits until the lease can be had, as long as a caller is made to wait, or until the turn is cancelled.
    pub(crate) async fn wait_for_lease(
        &self,
        claim: &LeaseClaim,
        cancelled: &CancellationToken,
    ) -> Result<Fence, TurnError> {
        // Once in any case: whoever holds it may be dead, and then there is nothing to wait for.
        if let Some(fence) = self.try_acquire_lease(claim).await? {
            return Ok(fence);
        }
        let attempts = async {
            loop {
                tokio::time::sleep(LEASE_POLL_INTERVAL).await;
                if let Some(fence) = self.try_acquire_lease(claim).await? {
                    return Ok(fence);
                }
            }
        };
        tokio::select! {
            () = cancelled.cancelled() => Err(TurnError::Cancelled),
            taken = tokio::time::timeout(self.session_wait_timeout, attempts) => taken.unwrap_or(Err(TurnError::Busy)),
        }
    }
}
