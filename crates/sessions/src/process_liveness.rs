//! Which processes of a home live, as seen from outside: by the files that each holds locked while it does.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use capstan_protocol::Timestamp;
use capstan_tape::{InFlightEvent, LeaseRecord, RunRecord, Store, StoreError};

/// How long an owner's file may be without its name: it gets it at once.
const UNNAMED_LOCK_GRACE: Duration = Duration::from_mins(1);

/// The folder in which the processes of a home show that they live. Looking at it leaves it as it is.
#[derive(Debug, Clone)]
pub struct ProcessLiveness {
    folder: PathBuf,
}

/// What is nobody's any more.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrphanedWork {
    /// Events in flight whose process is gone.
    pub events: Vec<InFlightEvent>,
    /// Runs that have not ended and whose process is gone.
    pub runs: Vec<RunRecord>,
}

impl OrphanedWork {
    /// What is abandoned here and there: what only looked so for a moment, because its process ended, is left out.
    pub fn retain_still_orphaned(mut self, before: &Self) -> Self {
        self.events.retain(|event| before.events.iter().any(|one| one.key == event.key && one.owner == event.owner));
        self.runs.retain(|run| before.runs.iter().any(|one| one.run_id == run.run_id));
        self
    }
}

impl ProcessLiveness {
    /// The owners whose files are in this folder, which need not be there.
    pub fn open(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Whether the process of this name lives; nothing when it cannot be told.
    pub fn is_alive(&self, process: &str) -> Option<bool> {
        if process.is_empty() || process.contains('/') {
            return None;
        }
        match File::open(self.folder.join(format!("{process}.lock"))) {
            Ok(file) => Some(file.try_lock_shared().is_err()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }

    /// Whether somebody works under a lease.
    pub fn is_lease_held(&self, lease: &LeaseRecord, now: Timestamp) -> bool {
        let Some(holder) = &lease.owner else { return false };
        let process = holder.split_once('/').map_or(holder.as_str(), |(process, _)| process);
        self.is_alive(process).unwrap_or(lease.expires_at > now)
    }

    /// Whether somebody works on a run that has not ended.
    pub async fn is_run_owned(&self, store: &dyn Store, run: &RunRecord, now: Timestamp) -> Result<bool, StoreError> {
        let event = store.in_flight_event(&run.event).await?;
        self.has_living_owner(store, event.as_ref(), run, now).await
    }

    /// Everything that no living process sees to.
    pub async fn find_orphaned(&self, store: &dyn Store, now: Timestamp) -> Result<OrphanedWork, StoreError> {
        let mut found = OrphanedWork::default();
        let mut runs = store.open_runs();
        while let Some(run) = runs.next().await? {
            let event = store.in_flight_event(&run.event).await?;
            // The event of a run that has ended since it was listed is not in flight any more.
            if event.is_none() && !store.run(&run.run_id).await?.is_some_and(|run| run.status.is_open()) {
                continue;
            }
            if !self.has_living_owner(store, event.as_ref(), &run, now).await? {
                found.runs.push(run);
            }
        }
        let mut events = store.in_flight_events(None);
        while let Some(event) = events.next().await? {
            let alive = match event.owner.as_deref().and_then(|owner| self.is_alive(owner)) {
                Some(alive) => alive,
                None => store.lease(&event.tape).await?.is_some_and(|lease| self.is_lease_held(&lease, now)),
            };
            if !alive {
                found.events.push(event);
            }
        }
        Ok(found)
    }

    /// The owner of the event a run serves sees to the run; where that cannot be told, whoever holds its session.
    async fn has_living_owner(
        &self,
        store: &dyn Store,
        event: Option<&InFlightEvent>,
        run: &RunRecord,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        match event.and_then(|event| event.owner.as_deref()).and_then(|owner| self.is_alive(owner)) {
            Some(alive) => Ok(alive),
            None => Ok(store.lease(&run.tape).await?.is_some_and(|lease| self.is_lease_held(&lease, now))),
        }
    }

    /// The files that dead owners left.
    pub fn stale_lock_files(&self) -> io::Result<Vec<PathBuf>> {
        let files = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut dead = Vec::new();
        for file in files {
            let path = file?.path();
            let is_dead = match path.extension().and_then(OsStr::to_str) {
                Some("lock") => is_unlocked(&path),
                Some("new") => is_unlocked(&path) && is_stale_unnamed(&path, SystemTime::now()),
                _ => false,
            };
            if is_dead {
                dead.push(path);
            }
        }
        dead.sort();
        Ok(dead)
    }

    /// Removes the files that dead owners left, and says how many.
    pub fn remove_stale_lock_files(&self) -> io::Result<usize> {
        let mut removed = 0;
        for path in self.stale_lock_files()? {
            match std::fs::remove_file(&path) {
                Ok(()) => removed += 1,
                // Whoever else removes it at the same time does the same.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }
}

/// A file gets its name when it is locked, so one that nobody has locked is a dead owner's.
fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
}

/// A file that has no name yet is unlocked for a moment, while its owner lives.
fn is_stale_unnamed(path: &Path, now: SystemTime) -> bool {
    let made = path.symlink_metadata().and_then(|file| file.modified());
    made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > UNNAMED_LOCK_GRACE))
}

#[cfg(test)]
#[path = "process_liveness_tests.rs"]
mod tests;
