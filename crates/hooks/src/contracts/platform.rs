//! What a run may reach outside of its conversation: knowledge bases, and the platform an event came from.

use async_trait::async_trait;
use capstan_protocol::{ActionRequest, ApiError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RetrieveCall, RetrievedPage};

/// A knowledge base that a run may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeBase {
    /// What it is asked for by.
    pub id: String,
    /// What it is about, for people and models.
    pub description: String,
}

/// What a knowledge base says to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnowledgePassage {
    /// Where it stands, such as a file, by a name within the base.
    pub source: String,
    /// The line of the source that it begins at, where that has lines.
    pub line: Option<u64>,
    /// The text.
    pub text: String,
    /// How well it fits, in the base's own measure: more is better.
    pub score: f64,
}

/// Knowledge bases, as a run may ask them.
#[async_trait]
pub trait KnowledgeApi: Send + Sync + 'static {
    /// The knowledge bases the run may see.
    async fn list(&self) -> Result<Vec<KnowledgeBase>, ApiError>;

    /// What fits a question best, the best first.
    async fn retrieve(&self, call: RetrieveCall) -> Result<RetrievedPage, ApiError>;
}

/// The platform an event came from, as a run may act on it.
#[async_trait]
pub trait PlatformApi: Send + Sync + 'static {
    /// Has something done, and gives what the platform said.
    async fn call(&self, request: ActionRequest) -> Result<Value, ApiError>;
}
