//! Artifacts: contents that are too large for a conversation.

use serde::{Deserialize, Serialize};

use crate::{ArtifactId, BlobHash};

/// What is known about an artifact. It stands on the tape of the run that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// What it is asked for by.
    pub id: ArtifactId,
    /// What it is, for people: `bash`, `report.csv`.
    pub name: String,
    /// What kind of content it is, as `text/plain`.
    pub media_type: String,
    /// How large it is.
    pub bytes: u64,
    /// The content it has, which is kept once.
    pub hash: BlobHash,
}
