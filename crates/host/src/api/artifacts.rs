//! Methods of `artifacts.*`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use capstan_hooks::contracts::methods::{ArtifactsCreate, ArtifactsDescribe, ArtifactsRead};
use capstan_hooks::contracts::{Artifact, ArtifactPart, NewArtifact};
use capstan_protocol::run_api::{ArtifactDescribeCall, ArtifactReadCall};
use capstan_protocol::{ApiError, ApiErrorCode, ArtifactId, ArtifactOperation, RunId, ToolCall, ToolOutput};
use capstan_tape::{EntryDraft, EntryKind, Fact, RunRecord, TapeEvent, TapeEventKind, TapeSlice, blob_hash};
use serde_json::json;

use super::method_handler::MethodHandler;
use super::payload_size::{PayloadSize, text_size};
use super::required_permission::RequiredPermission;
use super::{store_api_error, unauthorized_error};
use crate::api::spill;
use crate::runs::run::Run;

/// On the result of a call: the artifact that has the whole of it.
const ARTIFACT_META_KEY: &str = "artifact";
/// Maximum length of a name, in bytes.
const MAX_ARTIFACT_NAME_LEN: usize = 255;
/// Maximum size of a content.
const MAX_ARTIFACT_BYTES: usize = 64 * 1024 * 1024;
/// Entries read at once.
const ARTIFACT_SEARCH_PAGE_SIZE: usize = 500;

impl MethodHandler for ArtifactsDescribe {
    fn permission(_: &Run, _: &ArtifactDescribeCall) -> RequiredPermission {
        RequiredPermission::Artifacts(ArtifactOperation::Metadata)
    }

    fn payload(_: &Run, call: &ArtifactDescribeCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: ArtifactDescribeCall) -> Result<Artifact, ApiError> {
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

    async fn handle(run: &Arc<Run>, call: ArtifactReadCall) -> Result<ArtifactPart, ApiError> {
        let ArtifactReadCall { id, offset, limit } = call;
        let artifact = find_artifact(run, &id).await?;
        let store = run.services.tapes.store();
        let content = store.blob(&artifact.hash).await.map_err(|error| store_api_error(&error))?;
        let Some(content) = content else {
            let message = format!("the content of artifact {id} is not kept here");
            return Err(ApiError::new(ApiErrorCode::NotFound, message));
        };
        let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(content.len());
        let part = content[at(offset)..at(offset.saturating_add(limit))].to_vec();
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

    async fn handle(run: &Arc<Run>, new: NewArtifact) -> Result<Artifact, ApiError> {
        check_artifact(&new)?;
        let (artifact, fact, entry) = run.build_artifact(run.next_artifact_id(), new);
        let did_nothing_else = None;
        run.append_atomic(vec![fact], vec![entry], did_nothing_else);
        run.flush().await.map_err(|error| store_api_error(&error))?;
        Ok(artifact)
    }
}

/// The artifact, if the run's own tape tells of it, or that of a child run of its session. The id says which run made
/// it, so only what came after the beginning of that run is looked at.
async fn find_artifact(run: &Run, id: &ArtifactId) -> Result<Artifact, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    let unknown = || ApiError::new(ApiErrorCode::NotFound, format!("there is no artifact {id} in this session"));
    let tapes = &run.services.tapes;
    let maker = id.as_str().rsplit_once('.').map(|(run, _)| RunId::new(run)).ok_or_else(unknown)?;
    let maker = tapes.store().run(&maker).await.map_err(|error| store_api_error(&error))?.ok_or_else(unknown)?;
    if maker.session != run.context.conversation.session_id {
        return Err(unknown());
    }
    let tape = if is_child_of_session(run, &maker).await? { &maker.tape } else { run.journal.tape() };
    let mut slice = TapeSlice {
        kinds: vec![EntryKind::Event],
        limit: Some(ARTIFACT_SEARCH_PAGE_SIZE),
        ..TapeSlice::after(maker.begins_after)
    };
    loop {
        let page = tapes.read(tape, &slice).await.map_err(|error| store_api_error(&error))?;
        let Some(last) = page.last().map(|entry| entry.id) else { return Err(unknown()) };
        slice.after = Some(last);
        let told = page.iter().filter(|entry| entry.event_kind() == Some(TapeEventKind::ArtifactCreated));
        for event in told.filter_map(TapeEvent::from_entry) {
            if let TapeEvent::ArtifactCreated(artifact) = event
                && artifact.id == *id
            {
                return Ok(artifact);
            }
        }
    }
}

/// Tells whether a run is a child of this session, at any depth: its tape is a fork of the session's, or of such a fork.
async fn is_child_of_session(run: &Run, maker: &RunRecord) -> Result<bool, ApiError> {
    let (mut tape, session) = (maker.tape.clone(), run.journal.session_tape());
    if maker.parent.is_none() {
        return Ok(false);
    }
    while tape != *session {
        let record = run.services.tapes.record(&tape).await.map_err(|error| store_api_error(&error))?;
        let Some(fork) = record.and_then(|record| record.fork) else { return Ok(false) };
        tape = fork.parent;
    }
    Ok(true)
}

/// Refuses a content that is too large, or whose name is more than a name.
fn check_artifact(new: &NewArtifact) -> Result<(), ApiError> {
    if new.content.len() > MAX_ARTIFACT_BYTES {
        let message = format!("an artifact has at most {MAX_ARTIFACT_BYTES} bytes");
        return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
    }
    let is_name = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    if new.name.is_empty()
        || new.name.len() > MAX_ARTIFACT_NAME_LEN
        || new.name.starts_with('.')
        || !new.name.chars().all(is_name)
    {
        let message = format!(
            "an artifact has a name of 1 to {MAX_ARTIFACT_NAME_LEN} bytes, without slashes or control characters, that does not \
             begin with a dot"
        );
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    Ok(())
}

impl Run {
    /// Keeps a content that the runner handed over as a result. It is durable with what follows.
    pub(crate) fn store_artifact(&self, name: String, media_type: String, content: &str) -> Result<(), ApiError> {
        if !self.grant().may.artifacts.contains(&ArtifactOperation::Create) {
            return Err(unauthorized_error("artifacts"));
        }
        let content = BASE64
            .decode(content)
            .map_err(|_| ApiError::new(ApiErrorCode::InvalidArgument, "the content of an artifact is not base64"))?;
        let new = NewArtifact { name, media_type, content };
        check_artifact(&new)?;
        let (_, fact, entry) = self.build_artifact(self.next_artifact_id(), new);
        self.append_atomic(vec![fact], vec![entry], None);
        Ok(())
    }

    /// A content as an artifact of this run: what keeps it, and the entry that tells of it.
    fn build_artifact(&self, id: ArtifactId, new: NewArtifact) -> (Artifact, Fact, EntryDraft) {
        let content = self.services.options.secret_masker.mask_bytes(new.content);
        let artifact = Artifact {
            id,
            name: new.name,
            media_type: new.media_type,
            bytes: content.len() as u64,
            hash: blob_hash(&content),
        };
        let fact = Fact::PutBlob { hash: artifact.hash.clone(), bytes: content.into() };
        let entry = TapeEvent::ArtifactCreated(artifact.clone()).into();
        (artifact, fact, entry)
    }

    /// Writes the result of a call, and gives what the model gets of it: a text that is too long for the conversation
    /// becomes an artifact in the same commit, with a preview in its place. `did` is the tool, if it may have done
    /// something.
    pub(super) fn append_tool_result(
        &self,
        call: &ToolCall,
        mut output: ToolOutput,
        did: Option<String>,
    ) -> ToolOutput {
        let limit = self.services.options.limits.spill_bytes;
        let Some(text) = spill::take_long_text(&mut output, limit) else {
            self.append_atomic(Vec::new(), vec![EntryDraft::tool_result(&call.id, &output)], did);
            return output;
        };
        let (name, media_type) = (call.function.name.clone(), "text/plain; charset=utf-8".to_owned());
        let id = self.next_artifact_id();
        let output = spill::with_preview(output, &text, &id, limit);
        let (artifact, fact, told) =
            self.build_artifact(id, NewArtifact { name, media_type, content: text.into_bytes() });
        let result = EntryDraft::tool_result(&call.id, &output).with_meta(ARTIFACT_META_KEY, json!(artifact.id));
        self.append_atomic(vec![fact], vec![told, result], did);
        output
    }
}
