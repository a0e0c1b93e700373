//! `artifact.read`: reads a stored output that was too long for the conversation, or an attached file, part by part.

use capstan_hooks::contracts::{FnTool, ToolContext};
use capstan_protocol::{ArtifactId, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::{to_tool_error, typed_tool};

/// Number of bytes shown by default.
const DEFAULT_ARTIFACT_BYTES: u64 = 8 * 1024;
/// Maximum number of bytes per call, so that the part itself fits into the conversation.
const MAX_ARTIFACT_PART_BYTES: u64 = 24 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArtifactReadArgs {
    /// Artifact id, as named in the preview or the message.
    artifact: String,
    /// Start offset in bytes.
    #[serde(default)]
    offset: u64,
    /// Maximum number of bytes to show.
    limit: Option<u64>,
}

pub(super) fn read() -> FnTool {
    let description =
        "Shows part of an artifact, such as a tool result that was too long to be shown in full, or an attached file.";
    let read =
        typed_tool("artifact.read", description, |arguments: ArtifactReadArgs, context: ToolContext| async move {
            let id = ArtifactId::new(arguments.artifact);
            let limit = arguments.limit.unwrap_or(DEFAULT_ARTIFACT_BYTES).clamp(1, MAX_ARTIFACT_PART_BYTES);
            let part = context.api.artifacts.read(&id, arguments.offset, limit).await;
            let part = part.map_err(to_tool_error)?;
            let (size, start) = (part.artifact.bytes, part.offset.min(part.artifact.bytes));
            let skipped = part.content.iter().take_while(|byte| is_utf8_continuation(**byte)).count();
            let text = trim_partial_char(&part.content[skipped..]);
            let start = start + skipped as u64;
            let end = start + text.len() as u64;
            let rest =
                if end < size { format!("; continue with offset {end}") } else { "; end of artifact".to_owned() };
            Ok(ToolOutput::ok(format!("[bytes {start} to {end} of {size}{rest}]\n{}", String::from_utf8_lossy(text))))
        });
    read.with_read_only()
}

fn is_utf8_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Returns `bytes` without an incomplete character at the end.
fn trim_partial_char(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}
