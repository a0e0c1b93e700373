//! Methods of `artifacts.*`.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{ArtifactsCreate, ArtifactsDescribe, ArtifactsList, ArtifactsRead};
use capstan_hooks::contracts::{ApiMethod, Artifact, ArtifactPart, CursorPage, NewArtifact, PageRequest};
use capstan_protocol::run_api::{ArtifactDescribeCall, ArtifactListCall, ArtifactReadCall};
use capstan_protocol::{ApiError, ApiErrorCode, ArtifactId, ArtifactOperation, Content, ContentPart, RunId};
use capstan_tape::{EntryKind, EntryOrder, RunRecord, TapeEvent, TapeEventKind, TapeSlice};

use super::history::TapeCursor;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{paging, store_api_error};
use crate::api_error::unauthorized_error;
use crate::artifacts;
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::call_limiter::CallPermit;
use crate::run::{Run, dropped_result_entry};

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
        find_artifact(run, &call.id).await
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
        let artifact = find_artifact(run, &id).await?;
        let store = run.environment.tapes.store();
        let content = store.blob(&artifact.hash).await.map_err(|error| store_api_error(&error))?;
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
        artifacts::check_artifact(&new)?;
        let (artifact, fact, entry) = artifacts::build_artifact(run, run.next_artifact_id(), new);
        run.append_atomic(vec![fact], vec![entry], None);
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
        let (tape, order) = (run.journal.tape(), EntryOrder::OldestFirst);
        let request = PageRequest { cursor: call.cursor, limit, order, ..PageRequest::default() };
        let mut cursor = TapeCursor::from_call(ApiMethod::ArtifactsList, tape, &request)?;
        let mut items = Vec::new();
        loop {
            let kinds = vec![EntryKind::Event];
            let slice = TapeSlice { kinds, ..cursor.next_slice(ARTIFACT_SEARCH_PAGE_SIZE) };
            let entries = run.environment.tapes.read(tape, &slice).await.map_err(|error| store_api_error(&error))?;
            if entries.is_empty() {
                return Ok(CursorPage { items, next: None });
            }
            for entry in &entries {
                cursor.last_read = Some(entry.id);
                if entry.event_kind() == Some(TapeEventKind::ArtifactCreated)
                    && let Some(TapeEvent::ArtifactCreated(artifact)) = TapeEvent::from_entry(entry)
                {
                    items.push(artifact);
                    if items.len() >= limit {
                        return Ok(CursorPage { items, next: cursor.encode_cursor() });
                    }
                }
            }
        }
    }
}

/// Completes the references to artifacts in a content. A reference to an artifact that the run cannot read becomes a
/// line of text, and is recorded.
pub(crate) async fn resolve_artifact_parts(run: &Run, content: Content) -> Content {
    let Content::Parts(parts) = content else { return content };
    let mut resolved = Vec::with_capacity(parts.len());
    for part in parts {
        let (found, label) = match (part.artifact_id(), part.artifact_name()) {
            (Some(id), _) => (find_readable_artifact(run, &id).await, id.to_string()),
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

async fn find_readable_artifact(run: &Run, id: &ArtifactId) -> Result<Artifact, ApiError> {
    if !run.grant().may.artifacts.contains(&ArtifactOperation::Read) {
        return Err(unauthorized_error("artifacts"));
    }
    find_artifact(run, id).await
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

/// Finds an artifact on the run's own tape, or on that of a child run of its session. The id contains the run that
/// created it, so the search starts at the beginning of that run.
async fn find_artifact(run: &Run, id: &ArtifactId) -> Result<Artifact, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    let unknown = || ApiError::new(ApiErrorCode::NotFound, format!("there is no artifact {id} in this session"));
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
