//! Acquires and renews the leases of sessions.

use std::time::Duration;

use capstan_protocol::{Clock, TapeName, Timestamp};
use capstan_tape::{Batch, Fact, Fence, StoreError, TapeRepository};
use capstan_turn::TurnError;
use tokio_util::sync::CancellationToken;

use crate::lease::{LeaseClaim, LeaseOwner};

/// Poll interval for the lease of a session that another process holds.
pub(crate) const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Acquires and renews leases for this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LeaseKeeper {
    pub(crate) tapes: TapeRepository,
    pub(crate) owner: LeaseOwner,
    pub(crate) clock: Clock,
    /// Timeout of a run, which a lease outlasts.
    pub(crate) run_timeout: Duration,
    /// Timeout of the wait for a session that another process holds.
    pub(crate) session_wait_timeout: Duration,
}

impl LeaseKeeper {
    /// Returns true if any process, this one included, holds the lease of a session.
    pub(crate) async fn is_held(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let lease = self.tapes.store().lease(tape).await?;
        Ok(lease.is_some_and(|lease| self.owner.is_held(&lease, self.clock.now())))
    }

    /// Fact that takes a free lease, or extends the lease if the claim holds it. The liveness of another holder is not checked.
    pub(crate) fn renewal_fact(&self, claim: &LeaseClaim) -> Fact {
        let mut fact = claim.take_fact(None, self.clock.now(), self.run_timeout);
        if let Fact::TakeLease { now, .. } = &mut fact {
            // Before any lease expires: a holder of unchecked liveness may be alive, and must not lose its lease by time.
            *now = Timestamp::from_millis(0);
        }
        fact
    }

    /// Fact that takes the lease of a session if it is free, void or expired now.
    pub(crate) async fn lease_fact(&self, claim: &LeaseClaim) -> Result<Fact, StoreError> {
        let current = self.tapes.store().lease(claim.tape()).await?;
        Ok(claim.take_fact(current.as_ref(), self.clock.now(), self.run_timeout))
    }

    async fn try_acquire_lease(&self, claim: &LeaseClaim) -> Result<Option<Fence>, StoreError> {
        let mut batch = Batch::new();
        batch.push(self.lease_fact(claim).await?);
        let committed = self.tapes.store().commit(batch).await?;
        Ok(claim.fence(committed.outputs.first()))
    }

    /// Returns true if another process holds the lease of a session.
    pub(crate) async fn is_held_elsewhere(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let lease = self.tapes.store().lease(tape).await?;
        let now = self.clock.now();
        Ok(lease.is_some_and(|lease| self.owner.is_held_elsewhere(&lease, now)))
    }

    /// Waits until no other process holds the lease of a session. Returns false after the session wait timeout.
    pub(crate) async fn wait_until_not_held_elsewhere(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let polls = async {
            while self.is_held_elsewhere(tape).await? {
                tokio::time::sleep(LEASE_POLL_INTERVAL).await;
            }
            Ok(true)
        };
        tokio::time::timeout(self.session_wait_timeout, polls).await.unwrap_or(Ok(false))
    }

    /// Waits until the lease is acquired. Fails after the session wait timeout, or when the turn is cancelled.
    pub(crate) async fn wait_for_lease(
        &self,
        claim: &LeaseClaim,
        cancel_token: &CancellationToken,
    ) -> Result<Fence, TurnError> {
        // One attempt even if cancelled: the holder may be dead, and then there is no wait.
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
            () = cancel_token.cancelled() => Err(TurnError::Cancelled),
            acquired = tokio::time::timeout(self.session_wait_timeout, attempts) => acquired.unwrap_or(Err(TurnError::Busy)),
        }
    }
}
