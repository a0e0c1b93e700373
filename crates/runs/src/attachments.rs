//! Attachments of events as artifacts.
//!
//! A file inside an event is content of its acceptance entry, and is not stored a second time: its artifact is derived
//! from that entry. The id names the entry and the position of the part, so it is valid on the tape of the session and on
//! its forks.

use capstan_hooks::contracts::Artifact;
use capstan_protocol::{
    ArtifactId, EntryId, Event, EventInput, EventKey, EventOperation, HistoryOperation, InlineFile,
};
use capstan_tape::{Entry, EventAcceptance, StoreError, TapeSlice, blob_hash};

use crate::run::Run;

/// An attachment of an event, with its content.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EventAttachment {
    pub(crate) artifact: Artifact,
    pub(crate) content: Vec<u8>,
}

impl EventAttachment {
    fn new(entry: EntryId, position: usize, file: InlineFile) -> Self {
        let InlineFile { name, media_type, content } = file;
        let id = ArtifactId::of_attachment(entry, position);
        let (bytes, hash) = (content.len() as u64, blob_hash(&content));
        let artifact = Artifact { id, name, media_type, bytes, hash, content_blob: None };
        Self { artifact, content }
    }
}

/// Attachments with inline content of an event that an entry records.
pub(crate) fn event_attachments(entry: EntryId, event: &Event) -> impl Iterator<Item = EventAttachment> {
    let parts = event.input.contents.iter().enumerate();
    parts.filter_map(move |(position, part)| Some(EventAttachment::new(entry, position, part.inline_file()?)))
}

/// Attachments of an accepted event, if an entry records one that the run may read.
pub(crate) fn readable_attachments(run: &Run, entry: &Entry) -> Vec<EventAttachment> {
    match EventAcceptance::from_entry(entry) {
        Some(accepted) if may_read(run, &accepted.event) => event_attachments(entry.id, &accepted.event).collect(),
        _ => Vec::new(),
    }
}

/// Finds an attachment of an event of the session.
pub(crate) async fn find_attachment(run: &Run, id: &ArtifactId) -> Result<Option<EventAttachment>, StoreError> {
    let Some(entry) = id.attachment_entry() else { return Ok(None) };
    let Some(entry) = acceptance_entry(run, entry).await? else { return Ok(None) };
    Ok(readable_attachments(run, &entry).into_iter().find(|attachment| attachment.artifact.id == *id))
}

/// Attachments of the events that a run serves, oldest event first; none if the grant does not cover artifacts. `input` is
/// that of the events, which the context of a runner that reads text only describes in words.
pub(crate) async fn served_attachments(run: &Run, input: &EventInput) -> Result<Vec<Artifact>, StoreError> {
    let has_attachments = run.served_events.len() > 1 || input.contents.iter().any(|part| part.inline_file().is_some());
    if !has_attachments || run.grant().may.artifacts.is_empty() {
        return Ok(Vec::new());
    }
    let tapes = &run.environment.tapes;
    let mut entries = Vec::new();
    for (key, _) in &run.served_events {
        let record = tapes.store().inbox_record(key).await?;
        entries.extend(record.map(|record| record.entry));
    }
    entries.sort_unstable();
    let mut artifacts = Vec::new();
    for entry in entries {
        if let Some(entry) = acceptance_entry(run, entry).await? {
            artifacts.extend(readable_attachments(run, &entry).into_iter().map(|attachment| attachment.artifact));
        }
    }
    Ok(artifacts)
}

/// Returns true if a run may read the attachments of an event of its session: those of an event that it serves, and those
/// of others with access to the messages or the events of the session.
fn may_read(run: &Run, event: &Event) -> bool {
    let may = &run.grant().may;
    may.history.contains(&HistoryOperation::Page)
        || may.events.contains(&EventOperation::Get)
        || run.serves_event(&EventKey::from(event))
}

/// Entry on the tape of a run. One of an earlier generation is found if it records an event that the run serves.
async fn acceptance_entry(run: &Run, id: EntryId) -> Result<Option<Entry>, StoreError> {
    let (tapes, tape, slice) = (&run.environment.tapes, run.journal.tape(), TapeSlice::single(id));
    let current = tapes.read(tape, &slice).await?.pop();
    if current.is_some() {
        return Ok(current);
    }
    let earlier = tapes.read_any_generation(tape, &slice).await?.pop();
    let serves = |entry: &Entry| {
        EventAcceptance::from_entry(entry).is_some_and(|accepted| run.serves_event(&EventKey::from(&*accepted.event)))
    };
    Ok(earlier.filter(serves))
}
