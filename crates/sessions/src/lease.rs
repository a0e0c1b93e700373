//! Leases: one turn per session at a time, across all processes of a home.
//!
//! # Design
//!
//! The store has one lease record per tape, and each session has one tape: the token of its holder, an epoch and an
//! expiry time. A token is `<process>/<claim>`. While it lives, each process holds a lock on its file
//! `<process>.lock` in a shared folder, so the other processes of the machine can determine the liveness of a holder
//! without the clock. A process knows its own live claims. The expiry time decides only about a holder whose liveness
//! cannot be determined.
//!
//! # Invariants
//!
//! - A lock file gets its final name after it is locked: an unlocked file with a final name belongs to a dead owner.
//! - A living process creates its lock file again when it was removed or replaced. A missing file belongs to a dead owner, unless the
//!   owner started before the folder was created and may not have had the time to create its file again.
//! - A live claim holds its lease even after the expiry time; the lease of a dead claim is void even before it.
//! - An acquired lease yields a [`Fence`] with a new epoch, and the store refuses writes under an earlier epoch.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use capstan_delivery::OwnerRegistry;
use capstan_protocol::{TapeName, Timestamp};
use capstan_tape::{Fact, FactOutput, Fence, LeaseRecord, OwnerLiveness, StoreError};
use tokio_util::sync::CancellationToken;

use crate::HostError;
use crate::process_liveness::ProcessLiveness;
use crate::process_lock_file::ProcessLockFile;

/// Duration of a lease beyond the timeout of its run, for the work before and after the run.
const LEASE_MARGIN_MILLIS: i64 = 60_000;

/// Interval of the check that the lock file of this process exists.
const LOCK_FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Owner of leases: this process. While it lives it holds a file lock that tells other processes that it is alive. Cheap
/// to clone.
#[derive(Debug, Clone)]
pub struct LeaseOwner(Arc<LeaseOwnerState>);

#[derive(Debug)]
struct LeaseOwnerState {
    name: String,
    /// Tokens of the live claims.
    claims: Mutex<HashSet<String>>,
    lock_file: Option<ProcessLockFile>,
    /// Liveness of the other processes; `None` without a lock file.
    processes: Option<ProcessLiveness>,
}

impl LeaseOwner {
    fn new(name: String, shown: Option<(ProcessLockFile, ProcessLiveness)>) -> Self {
        let (lock_file, processes) = shown.unzip();
        Self(Arc::new(LeaseOwnerState { name, claims: Mutex::default(), lock_file, processes }))
    }

    /// Owner without a lock file, for stores that no other process shares. Other processes could judge its leases only
    /// by their expiry time.
    pub fn anonymous() -> Self {
        Self::new(format!("host-{}", capstan_protocol::time_ordered_uuid()), None)
    }

    /// Owner with a lock file in this folder, which shows other processes that it is alive.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, HostError> {
        let folder = folder.into();
        // After the folder exists: see `ProcessLiveness::is_alive`.
        let created = ProcessLockFile::create_folder(&folder);
        let name = format!("host-{}", capstan_protocol::time_ordered_uuid());
        let path = folder.join(format!("{name}.lock"));
        let lock_file_error = |error: std::io::Error| {
            let path = path.display().to_string();
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                    StoreError::DiskFull { what: path }.into()
                }
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                    StoreError::read_only(folder.display().to_string(), error).into()
                }
                _ => HostError::ProcessLock { path, detail: error.to_string() },
            }
        };
        created.map_err(lock_file_error)?;
        let processes = ProcessLiveness::open(&folder);
        if let Err(error) = processes.remove_stale_lock_files() {
            tracing::debug!(%error, "cannot remove the lock files of dead owners");
        }
        let lock_file = ProcessLockFile::create(path.clone()).map_err(lock_file_error)?;
        Ok(Self::new(name, Some((lock_file, processes))))
    }

    /// Creates the lock file again whenever it was removed or replaced, until `stop_token` fires. Without it, other
    /// processes would take this one for dead.
    pub async fn keep_lock_file(self, stop_token: CancellationToken) {
        let Some(lock_file) = &self.0.lock_file else { return };
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOCK_FILE_CHECK_INTERVAL) => {}
                () = stop_token.cancelled() => return,
            }
            if let Err(error) = lock_file.restore() {
                tracing::warn!(path = %lock_file.path().display(), %error, "cannot create the lock file of this process");
            }
        }
    }

    /// Name of this process.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Claim of a session actor to the lease of its session. It is live until it is dropped.
    pub(crate) fn claim(&self, tape: &TapeName) -> LeaseClaim {
        let token = format!("{}/{}", self.0.name, capstan_protocol::time_ordered_uuid());
        self.0.claims().insert(token.clone());
        LeaseClaim { owner: Arc::clone(&self.0), token, tape: tape.clone() }
    }

    /// Time until the liveness of every process is known; `None` if it is known now.
    pub(crate) fn remaining_grace(&self) -> Option<Duration> {
        self.0.processes.as_ref()?.remaining_grace(SystemTime::now())
    }

    /// Returns true only if another process is known to be alive; false if it is dead or its liveness is unknown.
    pub(crate) fn is_known_alive(&self, process: &str) -> bool {
        process != self.0.name
            && self.0.owner_liveness(&format!("{process}/")).is_some_and(|liveness| liveness.is_alive)
    }

    /// Returns true only if another process is known to be dead; false if it is alive or its liveness is unknown.
    pub fn is_known_dead(&self, process: &str) -> bool {
        process != self.0.name
            && self.0.owner_liveness(&format!("{process}/")).is_some_and(|liveness| !liveness.is_alive)
    }

    /// Returns true if the lease is held: by a live claim or, if the liveness of its holder is unknown, until it
    /// expires.
    pub fn is_held(&self, lease: &LeaseRecord, now: Timestamp) -> bool {
        let Some(holder) = &lease.owner else { return false };
        self.0.owner_liveness(holder).map_or(lease.expires_at > now, |liveness| liveness.is_alive)
    }

    /// Returns true if another process holds this lease.
    pub(crate) fn is_held_elsewhere(&self, lease: &LeaseRecord, now: Timestamp) -> bool {
        let holder = lease.owner.as_deref().and_then(|holder| holder.split_once('/'));
        holder.is_none_or(|(process, _)| process != self.0.name) && self.is_held(lease, now)
    }
}

impl OwnerRegistry for LeaseOwner {
    fn own_name(&self) -> &str {
        self.name()
    }

    fn is_known_dead(&self, owner: &str) -> bool {
        self.is_known_dead(owner)
    }
}

impl LeaseOwnerState {
    fn claims(&self) -> MutexGuard<'_, HashSet<String>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Liveness of the holder of a lease, determined without the clock; `None` if that is not possible.
    fn owner_liveness(&self, holder: &str) -> Option<OwnerLiveness> {
        let (process, _) = holder.split_once('/')?;
        let is_alive = if process == self.name {
            self.claims().contains(holder)
        } else {
            self.processes.as_ref()?.is_alive(process)?
        };
        Some(OwnerLiveness { owner: holder.to_owned(), is_alive })
    }
}

/// Claim of a session actor to the lease of its session.
#[derive(Debug)]
pub(crate) struct LeaseClaim {
    owner: Arc<LeaseOwnerState>,
    token: String,
    tape: TapeName,
}

impl LeaseClaim {
    /// Tape of the session.
    pub(crate) fn tape(&self) -> &TapeName {
        &self.tape
    }

    /// Fact that takes the lease if it is free, void or expired. `current` is the lease as stored.
    pub(crate) fn take_fact(&self, current: Option<&LeaseRecord>, now: Timestamp, run_timeout: Duration) -> Fact {
        let run_millis = i64::try_from(run_timeout.as_millis()).unwrap_or(i64::MAX);
        let holder = current.and_then(|lease| lease.owner.as_deref());
        Fact::TakeLease {
            tape: self.tape.clone(),
            owner: self.token.clone(),
            now,
            expires_at: now.plus_millis(run_millis.saturating_add(LEASE_MARGIN_MILLIS)),
            owner_liveness: holder.and_then(|holder| self.owner.owner_liveness(holder)),
        }
    }

    /// Fact that releases the lease.
    pub(crate) fn release_fact(&self) -> Fact {
        Fact::ReleaseLease { tape: self.tape.clone(), owner: self.token.clone() }
    }

    /// Fence of the lease, if the output of its [`take_fact`](Self::take_fact) shows that it was acquired.
    pub(crate) fn fence(&self, output: Option<&FactOutput>) -> Option<Fence> {
        match output {
            Some(FactOutput::Lease(Some(epoch))) => Some(Fence { tape: self.tape.clone(), epoch: *epoch }),
            _ => None,
        }
    }
}

impl Drop for LeaseClaim {
    fn drop(&mut self) {
        self.owner.claims().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::LeaseOwner;
    use capstan_protocol::{TapeName, Timestamp};
    use capstan_tape::{LeaseEpoch, LeaseRecord};

    fn lease_record(owner: &str) -> LeaseRecord {
        let tape = TapeName::parse("t").unwrap();
        LeaseRecord {
            tape,
            epoch: LeaseEpoch(1),
            owner: Some(owner.to_owned()),
            expires_at: Timestamp::from_millis(1000),
        }
    }

    #[test]
    fn x04_a_lease_is_held_while_its_owner_lives_regardless_of_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        let here = LeaseOwner::open(folder.path().to_owned()).unwrap();
        let there = LeaseOwner::open(folder.path().to_owned()).unwrap();
        let tape = TapeName::parse("t").unwrap();
        let claim = there.claim(&tape);
        let lease = lease_record(&claim.token);
        let late = Timestamp::from_millis(1_000_000);
        assert!(here.is_held(&lease, late), "a live owner keeps its lease past the expiry time");
        assert!(there.is_held(&lease, late), "its own process sees the same");
        drop(claim);
        assert!(!there.is_held(&lease, Timestamp::from_millis(0)), "a dropped claim holds no lease");
        drop(there);
        assert!(
            !here.is_held(&lease, Timestamp::from_millis(0)),
            "the lease of a dead owner is void before it expires"
        );
    }

    #[test]
    fn x04_lock_files_of_dead_owners_are_removed_and_those_of_live_owners_stay() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("host-dead.lock"), "").unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let first = LeaseOwner::open(folder.path().to_owned()).unwrap();
        let _second = LeaseOwner::open(folder.path().to_owned()).unwrap();
        assert_eq!(files(), 2);
        drop(first);
        assert_eq!(files(), 1);
    }

    #[test]
    fn x04_the_lease_of_an_owner_of_unknown_liveness_ends_by_time() {
        let here = LeaseOwner::anonymous();
        let lease = lease_record("elsewhere/1");
        assert!(here.is_held(&lease, Timestamp::from_millis(999)));
        assert!(!here.is_held(&lease, Timestamp::from_millis(1000)));
    }
}
