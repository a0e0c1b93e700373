//! Leases: one turn per session at a time, over all processes of this machine.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::{SessionId, Timestamp};
use capstan_tape::{Assigned, Batch, Epoch, Fact, Fence, LeaseRecord, Store};

use crate::{Clock, HostError};

/// How often a waiting process looks whether a session has become free.
const POLL: Duration = Duration::from_millis(50);
/// How much longer than its run a lease lasts, for what comes after the run.
const MARGIN_MILLIS: i64 = 60_000;

/// Who holds leases: this process. While it lives it holds a file lock, so that others on this machine can tell that a
/// dead owner's lease is void without waiting for it to expire.
#[derive(Debug, Clone)]
pub struct Owner {
    name: String,
    alive: Option<Arc<Alive>>,
}

#[derive(Debug)]
struct Alive {
    folder: PathBuf,
    own: PathBuf,
    /// Locked for as long as this process lives.
    _lock: File,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.own) {
            tracing::debug!(path = %self.own.display(), %error, "owner file was not removed");
        }
    }
}

impl Owner {
    /// An owner whose death nobody can tell: its leases end by time only. For stores that no other process shares.
    pub fn anonymous() -> Self {
        Self { name: format!("host-{}", uuid::Uuid::now_v7()), alive: None }
    }

    /// An owner that is seen to be alive by a locked file in this folder.
    pub fn in_folder(folder: PathBuf) -> Result<Self, HostError> {
        let name = format!("host-{}", uuid::Uuid::now_v7());
        let own = folder.join(format!("{name}.lock"));
        let failed = |error: &dyn std::fmt::Display| HostError::Owner {
            path: own.display().to_string(),
            detail: error.to_string(),
        };
        std::fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let lock = File::create(&own).map_err(|error| failed(&error))?;
        lock.try_lock().map_err(|error| failed(&error))?;
        Ok(Self { name, alive: Some(Arc::new(Alive { folder, own, _lock: lock })) })
    }

    /// Whether the owner of a lease is known to be dead: its file is gone, or nobody holds the lock on it.
    fn is_dead(&self, other: &str) -> bool {
        let Some(alive) = &self.alive else { return false };
        if other == self.name {
            return false;
        }
        match File::open(alive.folder.join(format!("{other}.lock"))) {
            Ok(file) => file.try_lock().is_ok(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// The fact that takes a session's lease, as far as it is free, expired, or its owner dead.
    pub(crate) fn take(&self, session: &SessionId, held: Option<&LeaseRecord>, now: Timestamp, run: Duration) -> Fact {
        let run_millis = i64::try_from(run.as_millis()).unwrap_or(i64::MAX);
        let holder = held.and_then(|lease| lease.owner.clone());
        Fact::TakeLease {
            session: session.clone(),
            owner: self.name.clone(),
            now,
            until: now.plus_millis(run_millis.saturating_add(MARGIN_MILLIS)),
            dead_owner: holder.filter(|owner| self.is_dead(owner)),
        }
    }

    /// The fact that gives it back.
    pub(crate) fn release(&self, session: &SessionId) -> Fact {
        Fact::ReleaseLease { session: session.clone(), owner: self.name.clone() }
    }
}

/// What a session's turn needs to take its lease.
pub(crate) struct Taker<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) owner: &'a Owner,
    pub(crate) clock: &'a Clock,
    pub(crate) run_timeout: Duration,
    pub(crate) wait: Duration,
}

impl Taker<'_> {
    /// The fact that takes the lease if it can be had now.
    pub(crate) async fn fact(&self, session: &SessionId) -> Result<Fact, HostError> {
        let held = self.store.lease(session).await?;
        Ok(self.owner.take(session, held.as_ref(), self.clock.now(), self.run_timeout))
    }

    /// Waits until the lease can be had, as long as a caller is made to wait.
    pub(crate) async fn wait(&self, session: &SessionId) -> Result<Fence, HostError> {
        let attempt = async {
            loop {
                let mut batch = Batch::new();
                batch.push(self.fact(session).await?);
                let committed = self.store.commit(batch).await?;
                if let Some(Assigned::Lease(Some(epoch))) = committed.assigned.first() {
                    return Ok(fence(session, *epoch));
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let timeout = tokio::time::timeout(self.wait, attempt).await;
        timeout.unwrap_or_else(|_| Err(HostError::SessionBusy { session: session.clone() }))
    }
}

/// The fence of a lease.
pub(crate) fn fence(session: &SessionId, epoch: Epoch) -> Fence {
    Fence { session: session.clone(), epoch }
}
