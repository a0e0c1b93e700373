//! Artifact administration: the artifacts of a home, as an operator sees and removes them.
//!
//! An artifact is an entry of a tape that refers to a content. Removing it removes the content; the entry stays, and the
//! removal is recorded on the system tape of the workspace. Attachments of events are part of their events, and are
//! neither listed nor removed here.

use std::collections::{HashMap, HashSet};

use capstan_protocol::{Artifact, ArtifactId, Clock, EntryId, SessionId, TapeName, Timestamp};
use capstan_tape::{
    ArtifactRemoval, Batch, Entry, EntryDraft, EntryKind, Fact, NewTape, StoreError, TapeAddress, TapeEvent,
    TapeEventKind, TapeRecord, TapeRepository, TapeSlice, tape_name,
};

/// Entries read at once.
const ARTIFACT_SCAN_PAGE_SIZE: usize = 500;
/// Artifacts removed in one commit.
const MAX_REMOVALS_PER_COMMIT: usize = 100;

/// Administers the artifacts of a home.
pub struct ArtifactAdmin {
    tapes: TapeRepository,
    clock: Clock,
    /// Tape on which removals are recorded.
    system_tape: TapeAddress,
}

/// An artifact whose content was not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredArtifact {
    /// The artifact.
    pub artifact: Artifact,
    /// Tape that records it.
    pub tape: TapeName,
    /// Session of the tape, if any.
    pub session: Option<SessionId>,
    /// Time at which it was created, if its entry has one.
    pub created_at: Option<Timestamp>,
}

impl StoredArtifact {
    /// Returns true if the content can be removed. An earlier version stored contents that other records may share.
    pub fn is_removable(&self) -> bool {
        self.artifact.content_blob.is_some()
    }
}

impl ArtifactAdmin {
    /// Administers the artifacts on these tapes. Removals are recorded on the tape `system`.
    pub fn new(tapes: TapeRepository, clock: Clock, system: TapeAddress) -> Self {
        Self { tapes, clock, system_tape: system }
    }

    /// All artifacts of the home, oldest first. Reads every tape.
    pub async fn list(&self) -> Result<Vec<StoredArtifact>, StoreError> {
        let mut scan = ArtifactScan::default();
        for record in self.tapes.list().await? {
            self.scan_tape(&record, &mut scan).await?;
        }
        let ArtifactScan { mut found, removed } = scan;
        found.retain(|id, _| !removed.contains(id));
        let mut artifacts: Vec<StoredArtifact> = found.into_values().collect();
        artifacts.sort_by(|a, b| (a.created_at, &a.artifact.id).cmp(&(b.created_at, &b.artifact.id)));
        Ok(artifacts)
    }

    /// Finds an artifact by its id.
    pub async fn find(&self, id: &ArtifactId) -> Result<Option<StoredArtifact>, StoreError> {
        Ok(self.list().await?.into_iter().find(|stored| stored.artifact.id == *id))
    }

    /// Content of an artifact; `None` if it is not stored here.
    pub async fn content(&self, artifact: &Artifact) -> Result<Option<Vec<u8>>, StoreError> {
        self.tapes.artifact_content(artifact).await
    }

    /// Removes the contents of those artifacts that are [removable](StoredArtifact::is_removable), and records why.
    pub async fn remove(&self, artifacts: &[StoredArtifact], reason: &str) -> Result<(), StoreError> {
        let removable: Vec<_> = artifacts
            .iter()
            .filter_map(|stored| Some((&stored.artifact, &stored.tape, stored.artifact.content_blob.clone()?)))
            .collect();
        for artifacts in removable.chunks(MAX_REMOVALS_PER_COMMIT) {
            let mut batch = Batch::new();
            let (tape, session) = (tape_name(&self.system_tape), Some(self.system_tape.session.clone()));
            let workspace = Some(self.system_tape.workspace.clone());
            batch.push(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::without_session(tape.clone()) }));
            for (artifact, artifact_tape, blob) in artifacts {
                batch.push(Fact::RemoveBlob { hash: blob.clone() });
                let removal = ArtifactRemoval {
                    id: artifact.id.clone(),
                    tape: (*artifact_tape).clone(),
                    bytes: artifact.bytes,
                    reason: reason.to_owned(),
                };
                let event = TapeEvent::ArtifactRemoved(removal);
                batch.append(&tape, EntryDraft { date: Some(self.clock.now().into()), ..event.into() });
            }
            self.tapes.commit(batch).await?;
        }
        Ok(())
    }

    /// Adds the artifacts that a tape records in any of its generations. A fork has those of its parent, which is read
    /// by itself.
    async fn scan_tape(&self, record: &TapeRecord, scan: &mut ArtifactScan) -> Result<(), StoreError> {
        let mut after = record.fork.as_ref().map_or(EntryId(0), |fork| fork.position);
        loop {
            let (kinds, limit) = (vec![EntryKind::Event], Some(ARTIFACT_SCAN_PAGE_SIZE));
            let slice = TapeSlice { kinds, limit, ..TapeSlice::after(after) };
            let entries = self.tapes.read_any_generation(&record.name, &slice).await?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.id;
            for entry in &entries {
                scan.add(record, entry);
            }
        }
    }
}

/// Artifacts and removals found so far.
#[derive(Default)]
struct ArtifactScan {
    found: HashMap<ArtifactId, StoredArtifact>,
    removed: HashSet<ArtifactId>,
}

impl ArtifactScan {
    fn add(&mut self, record: &TapeRecord, entry: &Entry) {
        // Checked first, because other events are numerous and may be large.
        let is_relevant =
            matches!(entry.event_kind(), Some(TapeEventKind::ArtifactCreated | TapeEventKind::ArtifactRemoved));
        if !is_relevant {
            return;
        }
        match TapeEvent::from_entry(entry) {
            Some(TapeEvent::ArtifactCreated(artifact)) => {
                let stored = StoredArtifact {
                    tape: record.name.clone(),
                    session: record.session.clone(),
                    created_at: entry.date.timestamp(),
                    artifact,
                };
                // The tape of a parent records the artifacts of a merged child again.
                self.found.entry(stored.artifact.id.clone()).or_insert(stored);
            }
            Some(TapeEvent::ArtifactRemoved(removal)) => {
                self.removed.insert(removal.id);
            }
            _ => {}
        }
    }
}
