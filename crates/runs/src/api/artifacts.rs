//! Methods of `artifacts.*`.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{ArtifactsCreate, ArtifactsDescribe, ArtifactsList, ArtifactsRead};
use capstan_hooks::contracts::{ApiMethod, Artifact, ArtifactPart, CursorPage, NewArtifact};
use capstan_protocol::run_api::{ArtifactDescribeCall, ArtifactListCall, ArtifactReadCall};
use capstan_protocol::{
    ApiError, ApiErrorCode, ArtifactId, ArtifactOperation, Content, ContentPart, EntryId, RunId, TapeName,
};
use capstan_tape::{Entry, EntryKind, EntryOrder, RunRecord, TapeEvent, TapeEventKind, TapeSlice};

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{paging, store_api_error};
use crate::api_error::unauthorized_error;
use crate::attachments::EventAttachment;
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::call_limiter::CallPermit;
use crate::run::{Run, dropped_result_entry};
use crate::{artifacts, attachments};

/// Entries read at once.
const ARTIFACT_SEARCH_PAGE_SIZE: usize = 500;

impl MethodHandler for ArtifactsDescribe {
    fn permission(_: &Run, _: &ArtifactDescribeCall) -> RequiredPermission {
        RequiredPermission::Artifacts(ArtifactOperation::Metadata)
    }

    fn payload(_: &Run, call: &ArtifactDescribeCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: ArtifactDescribeCall, _: CallPermit) -> Result<Artifact, ApiError> {
        Ok(find_artifact(run, &call.id).await?.artifact)
    }
}

impl MethodHandler for ArtifactsRead {
    fn permission(_: &Run, _: &ArtifactReadCall) -> RequiredPermission {
        RequiredPermission::Artifacts(ArtifactOperation::Read)
    }

    fn payload(_: &Run, call: &ArtifactReadCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: ArtifactReadCall, _: CallPermit) -> Result<ArtifactPart, ApiError> {
        let ArtifactReadCall { id, offset, limit } = call;
        let mut found = find_artifact(run, &id).await?;
        let (content, artifact) = (found.content(run).await?, found.artifact);
        let Some(content) = content else {
            let message = format!("the content of artifact {id} is not stored here");
            return Err(ApiError::new(ApiErrorCode::NotFound, message));
        };
        let clamp = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let part = content[clamp(offset)..clamp(offset.saturating_add(limit))].to_vec();
        Ok(ArtifactPart { artifact, offset, content: part })
    }
}

impl MethodHandler for ArtifactsCreate {
    fn permission(_: &Run, _: &NewArtifact) -> RequiredPermission {
        RequiredPermission::Artifacts(ArtifactOperation::Create)
    }

    fn payload(_: &Run, new: &NewArtifact) -> PayloadSize {
        PayloadSize::Content(text_size(&new.name) + text_size(&new.media_type) + new.content.len() as u64)
    }

    async fn handle(run: &Arc<Run>, new: NewArtifact, _: CallPermit) -> Result<Artifact, ApiError> {
        let artifact = artifacts::add_artifact(run, new)?;
        run.journal.flush().await.map_err(|error| store_api_error(&error))?;
        Ok(artifact)
    }
}

impl MethodHandler for ArtifactsList {
    fn permission(_: &Run, _: &ArtifactListCall) -> RequiredPermission {
        RequiredPermission::Artifacts(ArtifactOperation::Metadata)
    }

    fn payload(_: &Run, call: &ArtifactListCall) -> PayloadSize {
        PayloadSize::Arguments(optional_text_size(call.cursor.as_deref()))
    }

    async fn handle(run: &Arc<Run>, call: ArtifactListCall, _: CallPermit) -> Result<CursorPage<Artifact>, ApiError> {
        let limit = paging::clamp_limit(call.limit)?;
        run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
        let tape = run.journal.tape();
        let mut position = ArtifactPosition::from_call(tape, &call)?;
        let mut items = Vec::new();
        loop {
            let (kinds, page_size) = (vec![EntryKind::Event], Some(ARTIFACT_SEARCH_PAGE_SIZE));
            let slice = TapeSlice { kinds, limit: page_size, ..TapeSlice::after(position.after) };
            let entries = run.environment.tapes.read(tape, &slice).await.map_err(|error| store_api_error(&error))?;
            if entries.is_empty() {
                return Ok(CursorPage { items, next: None });
            }
            for entry in &entries {
                let recorded = recorded_artifacts(run, entry);
                let (first, count) = (position.returned_of(entry.id), recorded.len());
                for (number, artifact) in (1..).zip(recorded).skip(first) {
                    items.push(artifact);
                    if items.len() >= limit {
                        position.advance(entry.id, Some(number).filter(|number| *number < count));
                        return Ok(CursorPage { items, next: Some(position.encode_cursor()) });
                    }
                }
                position.advance(entry.id, None);
            }
        }
    }
}

/// Artifacts that an entry records: one that a run created, or the attachments of an event.
fn recorded_artifacts(run: &Run, entry: &Entry) -> Vec<Artifact> {
    match entry.event_kind() {
        Some(TapeEventKind::ArtifactCreated) => match TapeEvent::from_entry(entry) {
            Some(TapeEvent::ArtifactCreated(artifact)) => vec![artifact],
            _ => Vec::new(),
        },
        Some(TapeEventKind::EventAccepted) => {
            let attachments = attachments::readable_attachments(run, entry);
            attachments.into_iter().map(|attachment| attachment.artifact).collect()
        }
        _ => Vec::new(),
    }
}

/// Position in the list of the artifacts on a tape.
struct ArtifactPosition {
    list_key: String,
    /// The last entry whose artifacts were all returned.
    after: EntryId,
    /// An entry after it, with the number of its artifacts that were returned.
    partly_returned: Option<(EntryId, usize)>,
}

impl ArtifactPosition {
    fn from_call(tape: &TapeName, call: &ArtifactListCall) -> Result<Self, ApiError> {
        let list_key = format!("{tape} {:?}", EntryOrder::OldestFirst);
        let mut position = Self { list_key, after: EntryId(0), partly_returned: None };
        if let Some(cursor) = &call.cursor {
            let decoded = position.list().decode_cursor(cursor)?;
            let (entry, returned) = decoded.split_once('.').unwrap_or((&decoded, ""));
            position.advance(EntryId(entry.parse().unwrap_or_default()), returned.parse().ok());
        }
        Ok(position)
    }

    /// Number of artifacts of an entry that were returned before this page.
    fn returned_of(&self, entry: EntryId) -> usize {
        self.partly_returned.filter(|(partly, _)| *partly == entry).map_or(0, |(_, returned)| returned)
    }

    /// Moves behind an entry, or behind that number of its artifacts.
    fn advance(&mut self, entry: EntryId, returned: Option<usize>) {
        self.partly_returned = returned.map(|returned| (entry, returned));
        self.after = if returned.is_some() { EntryId(entry.0.saturating_sub(1)) } else { entry };
    }

    fn encode_cursor(&self) -> String {
        self.list().encode_cursor(&match self.partly_returned {
            Some((entry, returned)) => format!("{entry}.{returned}"),
            None => self.after.to_string(),
        })
    }

    fn list(&self) -> PagedList<'_> {
        PagedList { method: ApiMethod::ArtifactsList, list_key: &self.list_key }
    }
}

/// Completes the references to artifacts in a content. A reference to an artifact that the run cannot read becomes a
/// line of text, and is recorded.
pub(crate) async fn resolve_artifact_parts(run: &Run, content: Content) -> Content {
    let Content::Parts(parts) = content else { return content };
    let mut resolved = Vec::with_capacity(parts.len());
    for part in parts {
        let (found, label) = match (part.artifact_id(), part.artifact_name()) {
            (Some(id), _) => (find_sendable_artifact(run, &id).await, id.to_string()),
            (None, Some(name)) => (find_own_artifact(run, name).await, name.to_owned()),
            (None, None) => {
                resolved.push(part);
                continue;
            }
        };
        match found {
            Ok(artifact) => resolved.push(ContentPart::from_artifact(&artifact)),
            Err(error) => {
                run.append(dropped_result_entry("message.completed", &error.to_string()));
                resolved.push(ContentPart::from_text(format!("[file {label} is not available]")));
            }
        }
    }
    Content::Parts(resolved)
}

/// Finds an artifact that the run may read. The content of an attachment is inside its event, so a copy is stored, which
/// the outbox can refer to.
async fn find_sendable_artifact(run: &Run, id: &ArtifactId) -> Result<Artifact, ApiError> {
    if !run.grant().may.artifacts.contains(&ArtifactOperation::Read) {
        return Err(unauthorized_error("artifacts"));
    }
    let FoundArtifact { artifact, attached } = find_artifact(run, id).await?;
    match attached {
        Some(content) => {
            let Artifact { name, media_type, .. } = artifact;
            artifacts::add_artifact(run, NewArtifact { name, media_type, content })
        }
        None => Ok(artifact),
    }
}

/// Finds the newest artifact of this name that the run itself created.
async fn find_own_artifact(run: &Run, name: &str) -> Result<Artifact, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    let tapes = &run.environment.tapes;
    let record = tapes.store().run(run.id()).await.map_err(|error| store_api_error(&error))?;
    let begins_after = record.map(|record| record.begins_after).unwrap_or_default();
    let (kinds, limit) = (vec![EntryKind::Event], Some(ARTIFACT_SEARCH_PAGE_SIZE));
    let (mut slice, mut newest) = (TapeSlice { kinds, limit, ..TapeSlice::after(begins_after) }, None);
    loop {
        let page = tapes.read(run.journal.tape(), &slice).await.map_err(|error| store_api_error(&error))?;
        let Some(last) = page.last().map(|entry| entry.id) else { break };
        slice.after = Some(last);
        let created = page.iter().filter(|entry| entry.event_kind() == Some(TapeEventKind::ArtifactCreated));
        for entry in created.filter(|entry| entry.run_id() == Some(run.id().as_str())) {
            if let Some(TapeEvent::ArtifactCreated(artifact)) = TapeEvent::from_entry(entry)
                && artifact.name == name
            {
                newest = Some(artifact);
            }
        }
    }
    newest.ok_or_else(|| ApiError::new(ApiErrorCode::NotFound, format!("this run has created no artifact {name}")))
}

/// An artifact that was found.
struct FoundArtifact {
    artifact: Artifact,
    /// Content of an attachment, which is inside its event.
    attached: Option<Vec<u8>>,
}

impl FoundArtifact {
    /// The content; `None` if it is not stored.
    async fn content(&mut self, run: &Run) -> Result<Option<Vec<u8>>, ApiError> {
        if let Some(content) = self.attached.take() {
            return Ok(Some(content));
        }
        let stored = run.environment.tapes.artifact_content(&self.artifact).await;
        stored.map_err(|error| store_api_error(&error))
    }
}

/// Finds an artifact of the session: an attachment of an event, or an artifact that a run created.
async fn find_artifact(run: &Run, id: &ArtifactId) -> Result<FoundArtifact, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    if id.attachment_entry().is_none() {
        return Ok(FoundArtifact { artifact: find_created_artifact(run, id).await?, attached: None });
    }
    let found = attachments::find_attachment(run, id).await.map_err(|error| store_api_error(&error))?;
    let EventAttachment { artifact, content } = found.ok_or_else(|| unknown_artifact(id))?;
    Ok(FoundArtifact { artifact, attached: Some(content) })
}

fn unknown_artifact(id: &ArtifactId) -> ApiError {
    ApiError::new(ApiErrorCode::NotFound, format!("there is no artifact {id} in this session"))
}

/// Finds an artifact on the run's own tape, or on that of a child run of its session. The id contains the run that
/// created it, so the search starts at the beginning of that run.
async fn find_created_artifact(run: &Run, id: &ArtifactId) -> Result<Artifact, ApiError> {
    let unknown = || unknown_artifact(id);
    let tapes = &run.environment.tapes;
    let creator_id = id.as_str().rsplit_once('.').map(|(run, _)| RunId::new(run)).ok_or_else(unknown)?;
    let creator = tapes.store().run(&creator_id).await.map_err(|error| store_api_error(&error))?.ok_or_else(unknown)?;
    // On its own tape a run sees what it may read, on a fork also the artifacts of the parent's session.
    let tape = if is_child_of_session(run, &creator).await? { &creator.tape } else { run.journal.tape() };
    let mut slice = TapeSlice {
        kinds: vec![EntryKind::Event],
        limit: Some(ARTIFACT_SEARCH_PAGE_SIZE),
        ..TapeSlice::after(creator.begins_after)
    };
    loop {
        let page = tapes.read(tape, &slice).await.map_err(|error| store_api_error(&error))?;
        let Some(last) = page.last().map(|entry| entry.id) else { return Err(unknown()) };
        slice.after = Some(last);
        let created = page.iter().filter(|entry| entry.event_kind() == Some(TapeEventKind::ArtifactCreated));
        for event in created.filter_map(TapeEvent::from_entry) {
            if let TapeEvent::ArtifactCreated(artifact) = event
                && artifact.id == *id
            {
                return Ok(artifact);
            }
        }
    }
}

/// Returns true for a child run of this session, at any depth: its tape is a fork of the session's tape, or of such a
/// fork.
async fn is_child_of_session(run: &Run, creator: &RunRecord) -> Result<bool, ApiError> {
    let (mut tape, session_tape) = (creator.tape.clone(), run.journal.session_tape());
    if creator.parent.is_none() {
        return Ok(false);
    }
    while tape != *session_tape {
        let record = run.environment.tapes.record(&tape).await.map_err(|error| store_api_error(&error))?;
        let Some(fork) = record.and_then(|record| record.fork) else { return Ok(false) };
        tape = fork.parent;
    }
    Ok(true)
}
