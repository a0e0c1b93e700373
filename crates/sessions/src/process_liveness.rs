//! Liveness of the processes of a home, determined from the lock that each process holds on its file while it lives.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use capstan_protocol::Timestamp;
use capstan_tape::{InFlightEvent, LeaseRecord, RESTORED_OWNER, RunRecord, Store, StoreError};

/// Maximum age of a live owner's lock file before it is renamed to its final name; normally this takes an instant.
const UNNAMED_LOCK_GRACE: Duration = Duration::from_mins(1);

/// Time within which a living process creates a removed lock file again, with a margin for a busy machine.
const LOCK_FILE_RESTORE_GRACE: Duration = Duration::from_secs(10);

/// Precision of the time in the name of a process, which is rounded down.
const PROCESS_NAME_PRECISION: Duration = Duration::from_millis(1);

/// The folder with the lock files of the processes of a home. Checks do not modify it.
#[derive(Debug, Clone)]
pub struct ProcessLiveness {
    folder: PathBuf,
}

/// Work without a living owner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrphanedWork {
    /// Events in flight whose process is dead.
    pub events: Vec<InFlightEvent>,
    /// Open runs whose process is dead.
    pub runs: Vec<RunRecord>,
}

/// Open run of a living process that should have ended: the lease of its session, which outlasts the deadline of a run, has
/// expired.
#[derive(Debug, Clone, PartialEq)]
pub struct OverdueRun {
    /// The run.
    pub run: RunRecord,
    /// Name of the process.
    pub process: String,
    /// Id of the process in the operating system, if known.
    pub process_id: Option<u32>,
}

impl OrphanedWork {
    /// Keeps the work that was orphaned in an earlier check too. This removes work that appeared orphaned for a moment
    /// because its process was ending.
    pub fn retain_still_orphaned(mut self, before: &Self) -> Self {
        self.events
            .retain(|event| before.events.iter().any(|other| other.key == event.key && other.owner == event.owner));
        self.runs.retain(|run| before.runs.iter().any(|other| other.run_id == run.run_id));
        self
    }
}

impl ProcessLiveness {
    /// Opens the folder with the lock files, which need not exist.
    pub fn open(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns true if the process of this name lives; `None` if that cannot be determined.
    pub fn is_alive(&self, process: &str) -> Option<bool> {
        if process.is_empty() || process.contains('/') {
            return None;
        }
        if process == RESTORED_OWNER {
            return Some(false);
        }
        match File::open(self.folder.join(format!("{process}.lock"))) {
            Ok(file) => Some(file.try_lock_shared().is_err()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.judge_missing_file(process, SystemTime::now())
            }
            Err(_) => None,
        }
    }

    /// Liveness of a process without a lock file: it is dead, because a process removes its file when it ends. If the
    /// folder was removed while the process may have been alive, that is unknown until the process has had the time to
    /// create its file again.
    fn judge_missing_file(&self, process: &str, now: SystemTime) -> Option<bool> {
        let folder = match std::fs::metadata(&self.folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return Some(false),
        };
        // Some file systems do not record the creation time.
        let (Some(started), Ok(created)) = (process_start(process), folder.created()) else { return Some(false) };
        let is_recent = now.duration_since(created).is_ok_and(|age| age < LOCK_FILE_RESTORE_GRACE);
        let started_before = started + PROCESS_NAME_PRECISION < created;
        if started_before && is_recent { None } else { Some(false) }
    }

    /// Time until the liveness of every process is known, if the folder was created a short time ago: before that, a
    /// process without a lock file may be alive.
    pub(crate) fn remaining_grace(&self, now: SystemTime) -> Option<Duration> {
        let created = std::fs::metadata(&self.folder).and_then(|folder| folder.created()).ok()?;
        let age = now.duration_since(created).ok()?;
        LOCK_FILE_RESTORE_GRACE.checked_sub(age).filter(|remaining| !remaining.is_zero())
    }

    /// Returns true if a living process holds the lease.
    pub fn is_lease_held(&self, lease: &LeaseRecord, now: Timestamp) -> bool {
        let Some(holder) = &lease.owner else { return false };
        let process = holder.split_once('/').map_or(holder.as_str(), |(process, _)| process);
        self.is_alive(process).unwrap_or(lease.expires_at > now)
    }

    /// Returns true if a living process owns an open run.
    pub async fn is_run_owned(&self, store: &dyn Store, run: &RunRecord, now: Timestamp) -> Result<bool, StoreError> {
        let event = store.in_flight_event(&run.event).await?;
        self.has_living_owner(store, event.as_ref(), run, now).await
    }

    /// Finds all open runs and events in flight without a living owner.
    pub async fn find_orphaned(&self, store: &dyn Store, now: Timestamp) -> Result<OrphanedWork, StoreError> {
        let mut orphaned = OrphanedWork::default();
        let mut runs = store.open_runs();
        while let Some(run) = runs.next().await? {
            let event = store.in_flight_event(&run.event).await?;
            // A run that ended after it was listed has no event in flight any more.
            if event.is_none() && !store.run(&run.run_id).await?.is_some_and(|run| run.status.is_open()) {
                continue;
            }
            if !self.has_living_owner(store, event.as_ref(), &run, now).await? {
                orphaned.runs.push(run);
            }
        }
        let mut events = store.in_flight_events(None);
        while let Some(event) = events.next().await? {
            let is_alive = match event.owner.as_deref().and_then(|owner| self.is_alive(owner)) {
                Some(is_alive) => is_alive,
                None => store.lease(&event.tape).await?.is_some_and(|lease| self.is_lease_held(&lease, now)),
            };
            if !is_alive {
                orphaned.events.push(event);
            }
        }
        Ok(orphaned)
    }

    /// Finds open runs past their deadline whose process lives, such as one that is stopped.
    pub async fn find_overdue(&self, store: &dyn Store, now: Timestamp) -> Result<Vec<OverdueRun>, StoreError> {
        let mut overdue = Vec::new();
        let mut runs = store.open_runs();
        while let Some(run) = runs.next().await? {
            let Some(lease) = store.lease(&run.tape).await?.filter(|lease| lease.expires_at < now) else { continue };
            let Some((process, _)) = lease.owner.as_deref().and_then(|owner| owner.split_once('/')) else { continue };
            if self.is_alive(process) == Some(true) {
                overdue.push(OverdueRun { process_id: self.process_id(process), process: process.to_owned(), run });
            }
        }
        Ok(overdue)
    }

    /// A run belongs to the owner of the event it serves or, if that owner cannot be determined, to the holder of the
    /// session's lease.
    async fn has_living_owner(
        &self,
        store: &dyn Store,
        event: Option<&InFlightEvent>,
        run: &RunRecord,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        match event.and_then(|event| event.owner.as_deref()).and_then(|owner| self.is_alive(owner)) {
            Some(is_alive) => Ok(is_alive),
            None => Ok(store.lease(&run.tape).await?.is_some_and(|lease| self.is_lease_held(&lease, now))),
        }
    }

    /// Id of the operating system for a process, from its lock file; `None` if it has no file, or an older version wrote it.
    pub fn process_id(&self, process: &str) -> Option<u32> {
        let path = self.folder.join(format!("{process}.lock"));
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Names of the living processes.
    pub fn living_processes(&self) -> io::Result<Vec<String>> {
        let files = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut living = Vec::new();
        for file in files {
            let path = file?.path();
            let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(".lock"));
            if let Some(name) = name
                && self.is_alive(name) == Some(true)
            {
                living.push(name.to_owned());
            }
        }
        living.sort();
        Ok(living)
    }

    /// Lock files of dead owners.
    pub fn stale_lock_files(&self) -> io::Result<Vec<PathBuf>> {
        let files = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut stale = Vec::new();
        for file in files {
            let path = file?.path();
            let is_stale = match path.extension().and_then(OsStr::to_str) {
                Some("lock") => is_unlocked(&path),
                // The age first: the owner of a new file is about to lock it, and a probe would be in its way.
                Some("new") => is_stale_unnamed(&path, SystemTime::now()) && is_unlocked(&path),
                _ => false,
            };
            if is_stale {
                stale.push(path);
            }
        }
        stale.sort();
        Ok(stale)
    }

    /// Removes the lock files of dead owners and returns their number.
    pub fn remove_stale_lock_files(&self) -> io::Result<usize> {
        let mut removed = 0;
        for path in self.stale_lock_files()? {
            match std::fs::remove_file(&path) {
                Ok(()) => removed += 1,
                // Another process removed it at the same time.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }
}

/// Start of a process, from the time in its name.
fn process_start(process: &str) -> Option<SystemTime> {
    let id = uuid::Uuid::parse_str(process.strip_prefix("host-")?).ok()?;
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Returns true for a file without a lock. A lock file gets its name when it is locked, so a named file without a lock
/// belongs to a dead owner.
fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
}

/// Returns true for a file that should have its final name by now. Before that it is unlocked for a moment, while its
/// owner lives.
fn is_stale_unnamed(path: &Path, now: SystemTime) -> bool {
    let modified = path.symlink_metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > UNNAMED_LOCK_GRACE))
}

#[cfg(test)]
#[path = "process_liveness_tests.rs"]
mod tests;
