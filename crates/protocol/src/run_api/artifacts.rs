//! Requests and responses of `artifacts.*`: content that is too large for a conversation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::base64_bytes;
use crate::{Artifact, ArtifactId};

/// Request for the description of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactDescribeCall {
    /// The artifact.
    pub id: ArtifactId,
}

/// Request for a range of an artifact's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactReadCall {
    /// The artifact.
    pub id: ArtifactId,
    /// First byte of the range.
    #[serde(default)]
    pub offset: u64,
    /// Maximum length of the range.
    pub limit: u64,
}

/// Request for a page of the artifacts of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactListCall {
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of artifacts, at least 1.
    pub limit: usize,
}

/// Content to be stored as an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewArtifact {
    /// Name for people: a file name without a path.
    pub name: String,
    /// Media type of the content.
    pub media_type: String,
    /// The content; base64 in JSON.
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    pub content: Vec<u8>,
}

/// A range of an artifact's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactPart {
    /// The artifact.
    pub artifact: Artifact,
    /// First byte of the range.
    pub offset: u64,
    /// The range, base64 in JSON. Shorter than the limit where the artifact ends.
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    pub content: Vec<u8>,
}
