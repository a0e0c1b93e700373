//! Artifacts of a run, and the tool results that refer to them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use capstan_hooks::contracts::{Artifact, NewArtifact};
use capstan_protocol::{ApiError, ApiErrorCode, ArtifactId, ArtifactOperation, ToolCall, ToolOutput};
use capstan_tape::{EntryDraft, Fact, TapeEvent, blob_hash};
use serde_json::json;

use crate::api_error::unauthorized_error;
use crate::run::Run;
use crate::spill;

/// On the result of a call: the artifact that has the whole of it.
const ARTIFACT_META_KEY: &str = "artifact";
/// Maximum length of a name, in bytes.
const MAX_ARTIFACT_NAME_LEN: usize = 255;
/// Maximum size of a content.
const MAX_ARTIFACT_BYTES: usize = 64 * 1024 * 1024;

/// Keeps a content that the runner handed over as a result. It is durable with what follows.
pub(crate) fn store_artifact(run: &Run, name: String, media_type: String, content: &str) -> Result<(), ApiError> {
    if !run.grant().may.artifacts.contains(&ArtifactOperation::Create) {
        return Err(unauthorized_error("artifacts"));
    }
    let content = BASE64
        .decode(content)
        .map_err(|_| ApiError::new(ApiErrorCode::InvalidArgument, "the content of an artifact is not base64"))?;
    let new = NewArtifact { name, media_type, content };
    check_artifact(&new)?;
    let (_, fact, entry) = build_artifact(run, run.next_artifact_id(), new);
    run.append_atomic(vec![fact], vec![entry], None);
    Ok(())
}

/// A content as an artifact of this run: what keeps it, and the entry that tells of it.
pub(crate) fn build_artifact(run: &Run, id: ArtifactId, new: NewArtifact) -> (Artifact, Fact, EntryDraft) {
    let content = run.environment.options.secret_masker.mask_bytes(new.content);
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
pub(crate) fn append_tool_result(
    run: &Run,
    call: &ToolCall,
    mut output: ToolOutput,
    did: Option<String>,
) -> ToolOutput {
    let limit = run.environment.options.limits.spill_bytes;
    let Some(text) = spill::take_long_text(&mut output, limit) else {
        run.append_atomic(Vec::new(), vec![EntryDraft::tool_result(&call.id, &output)], did);
        return output;
    };
    let (name, media_type) = (call.function.name.clone(), "text/plain; charset=utf-8".to_owned());
    let id = run.next_artifact_id();
    let output = spill::with_preview(output, &text, &id, limit);
    let (artifact, fact, told) = build_artifact(run, id, NewArtifact { name, media_type, content: text.into_bytes() });
    let result = EntryDraft::tool_result(&call.id, &output).with_meta(ARTIFACT_META_KEY, json!(artifact.id));
    run.append_atomic(vec![fact], vec![told, result], did);
    output
}

/// Refuses a content that is too large, or whose name is more than a name.
pub(crate) fn check_artifact(new: &NewArtifact) -> Result<(), ApiError> {
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
