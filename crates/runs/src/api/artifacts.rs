//! Methods of `artifacts.*`.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{ArtifactsCreate, ArtifactsDescribe, ArtifactsRead};
use capstan_hooks::contracts::{Artifact, ArtifactPart, NewArtifact};
use capstan_protocol::run_api::{ArtifactDescribeCall, ArtifactReadCall};
use capstan_protocol::{ApiError, ApiErrorCode, ArtifactId, ArtifactOperation, RunId};
use capstan_tape::{EntryKind, RunRecord, TapeEvent, TapeEventKind, TapeSlice};

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::store_api_error;
use crate::artifacts;
use crate::payload_size::{PayloadSize, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

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

/// Finds an artifact on the run's own tape, or on that of a child run of its session. The id contains the run that
/// created it, so the search starts at the beginning of that run.
async fn find_artifact(run: &Run, id: &ArtifactId) -> Result<Artifact, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    let unknown = || ApiError::new(ApiErrorCode::NotFound, format!("there is no artifact {id} in this session"));
    let tapes = &run.environment.tapes;
    let creator_id = id.as_str().rsplit_once('.').map(|(run, _)| RunId::new(run)).ok_or_else(unknown)?;
    let creator = tapes.store().run(&creator_id).await.map_err(|error| store_api_error(&error))?.ok_or_else(unknown)?;
    if creator.session != run.context.conversation.session_id {
        return Err(unknown());
    }
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
