//! Artifacts: content that is too large for a conversation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ArtifactId, BlobHash};

/// Description of an artifact, recorded on the tape of the run that created it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Id of the artifact.
    pub id: ArtifactId,
    /// Name for people: `bash`, `report.csv`.
    pub name: String,
    /// Media type of the content, such as `text/plain`.
    pub media_type: String,
    /// Size of the content.
    pub bytes: u64,
    /// Hash of the content.
    pub hash: BlobHash,
    /// Blob with the content and a unique mark, which can be removed by itself. Absent in artifacts of earlier versions,
    /// whose content is the blob `hash`, which may be shared, and in attachments, whose content is part of their event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_blob: Option<BlobHash>,
}
