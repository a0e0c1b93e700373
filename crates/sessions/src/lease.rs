//! Leases: one turn per session at a time, over all processes of this machine.

use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_delivery::RowOwner;
use capstan_protocol::{TapeName, Timestamp};
use capstan_tape::{Fact, FactOutput, Fence, LeaseRecord, OwnerLiveness, StoreError};

use crate::HostError;
use crate::process_liveness::ProcessLiveness;

/// How much longer than its run a lease lasts, for what comes before and after the run.
const LEASE_MARGIN_MILLIS: i64 = 60_000;

/// Who holds leases: this process. While it lives it holds a file lock, so that others on this machine can tell that a
/// dead owner's lease is void, and a live one's is not, without looking at the clock.
#[derive(Debug, Clone)]
pub struct LeaseOwner(Arc<LeaseOwnerState>);

#[derive(Debug)]
struct LeaseOwnerState {
    name: String,
    /// The claims of turns that are going on.
    claims: Mutex<HashSet<String>>,
    lock_file: Option<ProcessLockFile>,
}

#[derive(Debug)]
struct ProcessLockFile {
    processes: ProcessLiveness,
    path: PathBuf,
    /// Locked for as long as this process lives.
    _lock: File,
}

impl Drop for ProcessLockFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "owner file was not removed");
        }
    }
}

impl LeaseOwner {
    fn new(name: String, presence: Option<ProcessLockFile>) -> Self {
        Self(Arc::new(LeaseOwnerState { name, claims: Mutex::default(), lock_file: presence }))
    }

    /// An owner whose death nobody can tell: its leases end by time only. For stores that no other process shares.
    pub fn anonymous() -> Self {
        Self::new(format!("host-{}", uuid::Uuid::now_v7()), None)
    }

    /// An owner that is seen to be alive by a locked file in this folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, HostError> {
        let folder = folder.into();
        let name = format!("host-{}", uuid::Uuid::now_v7());
        let own = folder.join(format!("{name}.lock"));
        let failed = |error: std::io::Error| {
            let path = own.display().to_string();
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
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let others = ProcessLiveness::open(&folder);
        if let Err(error) = others.remove_stale_lock_files() {
            tracing::debug!(%error, "the files of dead owners could not be removed");
        }
        // It gets its name when it is locked, so that a file of that name that nobody has locked is a dead owner's.
        let unnamed = own.with_extension("new");
        let lock = File::create(&unnamed).map_err(failed)?;
        lock.try_lock().map_err(|error| failed(error.into()))?;
        std::fs::rename(&unnamed, &own).map_err(failed)?;
        Ok(Self::new(name, Some(ProcessLockFile { processes: others, path: own, _lock: lock })))
    }

    /// What this process is called.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The claim of one turn to a session's lease. It is live until it is dropped.
    pub(crate) fn claim(&self, tape: &TapeName) -> LeaseClaim {
        let token = format!("{}/{}", self.0.name, uuid::Uuid::now_v7());
        self.0.claims().insert(token.clone());
        LeaseClaim { owner: Arc::clone(&self.0), token, tape: tape.clone() }
    }

    /// Whether this process is known to be dead. Of one that cannot be told about, nothing is known.
    pub fn is_dead(&self, process: &str) -> bool {
        process != self.0.name && self.0.owner_liveness(&format!("{process}/")).is_some_and(|judged| !judged.is_alive)
    }

    /// Whether somebody works under this lease.
    pub fn is_held(&self, lease: &LeaseRecord, now: Timestamp) -> bool {
        let Some(holder) = &lease.owner else { return false };
        self.0.owner_liveness(holder).map_or(lease.expires_at > now, |judged| judged.is_alive)
    }

    /// Whether another process works under this lease.
    pub(crate) fn is_held_elsewhere(&self, lease: &LeaseRecord, now: Timestamp) -> bool {
        let holder = lease.owner.as_deref().and_then(|holder| holder.split_once('/'));
        holder.is_none_or(|(process, _)| process != self.0.name) && self.is_held(lease, now)
    }
}

impl RowOwner for LeaseOwner {
    fn name(&self) -> &str {
        self.name()
    }

    fn is_dead(&self, owner: &str) -> bool {
        self.is_dead(owner)
    }
}

impl LeaseOwnerState {
    fn claims(&self) -> MutexGuard<'_, HashSet<String>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be told about the holder of a lease without looking at the clock.
    fn owner_liveness(&self, holder: &str) -> Option<OwnerLiveness> {
        let (process, _) = holder.split_once('/')?;
        let alive = if process == self.name {
            self.claims().contains(holder)
        } else {
            self.lock_file.as_ref()?.processes.is_alive(process)?
        };
        Some(OwnerLiveness { owner: holder.to_owned(), is_alive: alive })
    }
}

/// One turn's claim to the lease of its session.
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

    /// The fact that takes the lease, as far as it is free, void or expired.
    pub(crate) fn take_fact(&self, held: Option<&LeaseRecord>, now: Timestamp, run: Duration) -> Fact {
        let run_millis = i64::try_from(run.as_millis()).unwrap_or(i64::MAX);
        let holder = held.and_then(|lease| lease.owner.as_deref());
        Fact::TakeLease {
            tape: self.tape.clone(),
            owner: self.token.clone(),
            now,
            expires_at: now.plus_millis(run_millis.saturating_add(LEASE_MARGIN_MILLIS)),
            owner_liveness: holder.and_then(|holder| self.owner.owner_liveness(holder)),
        }
    }

    /// The fact that gives it back.
    pub(crate) fn release_fact(&self) -> Fact {
        Fact::ReleaseLease { tape: self.tape.clone(), owner: self.token.clone() }
    }

    /// The fence that a taken lease gives.
    pub(crate) fn fence(&self, assigned: Option<&FactOutput>) -> Option<Fence> {
        match assigned {
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
    fn x04_a_lease_is_held_while_its_owner_lives_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let here = LeaseOwner::open(folder.path().to_owned()).unwrap();
        let there = LeaseOwner::open(folder.path().to_owned()).unwrap();
        let tape = TapeName::parse("t").unwrap();
        let claim = there.claim(&tape);
        let held = lease_record(&claim.token);
        let late = Timestamp::from_millis(1_000_000);
        assert!(here.is_held(&held, late), "alive past its time");
        assert!(there.is_held(&held, late), "and so it is for its own process");
        drop(claim);
        assert!(!there.is_held(&held, Timestamp::from_millis(0)), "a turn that is over holds nothing");
        drop(there);
        assert!(!here.is_held(&held, Timestamp::from_millis(0)), "dead before its time");
    }

    #[test]
    fn x04_the_files_of_dead_owners_are_removed_and_those_of_live_ones_stay() {
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
    fn x04_the_lease_of_an_owner_nobody_can_tell_about_ends_by_time() {
        let here = LeaseOwner::anonymous();
        let held = lease_record("elsewhere/1");
        assert!(here.is_held(&held, Timestamp::from_millis(999)));
        assert!(!here.is_held(&held, Timestamp::from_millis(1000)));
    }
}
