//! Artifacts of a run, and the tool results that refer to them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use capstan_hooks::contracts::{Artifact, NewArtifact};
use capstan_protocol::{ApiError, ApiErrorCode, ArtifactId, ArtifactOperation, ToolCall, ToolOutput};
use capstan_tape::{EntryDraft, Fact, MarkedBlob, TapeEvent, blob_hash};
use serde_json::json;

use crate::api_error::unauthorized_error;
use crate::run::Run;
use crate::spill;

/// Meta key on a tool result that names the artifact with the whole output.
const ARTIFACT_META_KEY: &str = "artifact";
/// Maximum length of the name of an artifact, in bytes.
const MAX_ARTIFACT_NAME_LEN: usize = 255;
/// Maximum size of an artifact, in bytes.
const MAX_ARTIFACT_BYTES: usize = 64 * 1024 * 1024;

/// Stores an artifact that the runner yielded as a result. It is durable with the next commit.
pub(crate) fn store_artifact(run: &Run, name: String, media_type: String, content: &str) -> Result<(), ApiError> {
    if !run.grant().may.artifacts.contains(&ArtifactOperation::Create) {
        return Err(unauthorized_error("artifacts"));
    }
    let content = BASE64
        .decode(content)
        .map_err(|_| ApiError::new(ApiErrorCode::InvalidArgument, "the content of an artifact is not base64"))?;
    add_artifact(run, NewArtifact { name, media_type, content }).map(drop)
}

/// Adds an artifact to the run, within its quota. It is durable with the next commit.
pub(crate) fn add_artifact(run: &Run, new: NewArtifact) -> Result<Artifact, ApiError> {
    check_artifact(&new)?;
    run.artifact_quota.reserve(new.content.len() as u64)?;
    let (artifact, fact, entry) = build_artifact(run, run.next_artifact_id(), new);
    run.append_atomic(vec![fact], vec![entry], None);
    Ok(artifact)
}

/// Builds an artifact of this run: the artifact, the fact that stores its content, and the entry that records it.
fn build_artifact(run: &Run, id: ArtifactId, new: NewArtifact) -> (Artifact, Fact, EntryDraft) {
    let content = run.environment.options.secret_masker.mask_bytes(new.content);
    let (bytes, hash) = (content.len() as u64, blob_hash(&content));
    let blob = MarkedBlob::new(content);
    let NewArtifact { name, media_type, .. } = new;
    let artifact = Artifact { id, name, media_type, bytes, hash, content_blob: Some(blob.hash.clone()) };
    let entry = TapeEvent::ArtifactCreated(artifact.clone()).into();
    (artifact, blob.into_fact(), entry)
}

/// Writes the result of a call and returns the output for the model. A text that is too long for the conversation
/// becomes an artifact in the same commit, with a preview in its place. `effectful_tool` is the tool, if it may have
/// effects.
pub(crate) fn append_tool_result(
    run: &Run,
    call: &ToolCall,
    mut output: ToolOutput,
    effectful_tool: Option<String>,
) -> ToolOutput {
    let limit = run.environment.options.limits.spill_bytes;
    let Some(text) = spill::take_long_text(&mut output, limit) else {
        run.append_atomic(Vec::new(), vec![EntryDraft::tool_result(&call.id, &output)], effectful_tool);
        return output;
    };
    let (name, media_type) = (call.function.name.clone(), "text/plain; charset=utf-8".to_owned());
    let id = run.next_artifact_id();
    let output = spill::with_preview(output, &text, &id, limit);
    let (artifact, fact, artifact_entry) =
        build_artifact(run, id, NewArtifact { name, media_type, content: text.into_bytes() });
    let result = EntryDraft::tool_result(&call.id, &output).with_meta(ARTIFACT_META_KEY, json!(artifact.id));
    run.append_atomic(vec![fact], vec![artifact_entry, result], effectful_tool);
    output
}

/// Rejects an artifact that is too large or whose name is not a plain file name.
fn check_artifact(new: &NewArtifact) -> Result<(), ApiError> {
    if new.content.len() > MAX_ARTIFACT_BYTES {
        let message = format!("an artifact has at most {MAX_ARTIFACT_BYTES} bytes");
        return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
    }
    let is_name_char = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    if new.name.is_empty()
        || new.name.len() > MAX_ARTIFACT_NAME_LEN
        || new.name.starts_with('.')
        || !new.name.chars().all(is_name_char)
    {
        let message = format!(
            "an artifact has a name of 1 to {MAX_ARTIFACT_NAME_LEN} bytes, without slashes or control characters, that does not \
             begin with a dot"
        );
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    Ok(())
}
