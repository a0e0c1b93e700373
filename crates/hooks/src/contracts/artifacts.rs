//! Artifacts: contents that are too large for a conversation, kept beside it.

use async_trait::async_trait;
pub use capstan_protocol::Artifact;
use capstan_protocol::{ApiError, ArtifactId};

/// A content to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArtifact {
    /// What it is, for people.
    pub name: String,
    /// What kind of content it is.
    pub media_type: String,
    /// The content.
    pub content: Vec<u8>,
}

/// A part of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactPart {
    /// The artifact.
    pub artifact: Artifact,
    /// Where the part begins.
    pub offset: u64,
    /// The part. Shorter than what was asked for where the artifact ends.
    pub content: Vec<u8>,
}

/// Artifacts, as a run may use them: those of its session's tape, up to where a fork of it branched off.
#[async_trait]
pub trait ArtifactsApi: Send + Sync + 'static {
    /// What is known about an artifact.
    async fn describe(&self, id: &ArtifactId) -> Result<Artifact, ApiError>;

    /// At most `limit` bytes of an artifact, from `offset` on.
    async fn read(&self, id: &ArtifactId, offset: u64, limit: u64) -> Result<ArtifactPart, ApiError>;

    /// Keeps a content. It is durable when this returns.
    async fn create(&self, artifact: NewArtifact) -> Result<Artifact, ApiError>;
}
