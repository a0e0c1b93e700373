//! Requests and responses of `knowledge.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CursorPage;

/// A knowledge base that a run may query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgeBase {
    /// Id of the knowledge base.
    pub id: String,
    /// Subject of the knowledge base, for people and models.
    pub description: String,
}

/// A query to a knowledge base.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetrieveCall {
    /// Id of the knowledge base.
    pub base: String,
    /// Words of the question.
    pub question: String,
    /// `next` of the page before; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of passages, at least 1.
    pub limit: usize,
}

/// A passage of a knowledge base.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgePassage {
    /// Source of the passage, such as a file, by a name within the knowledge base.
    pub source: String,
    /// First line of the passage, where the source has lines.
    #[serde(default)]
    pub line: Option<u64>,
    /// The text.
    pub text: String,
    /// Relevance, in the base's own measure: more is better.
    pub score: f64,
}

/// A page of passages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievedPage {
    /// The passages, the best first. Where the base has changed since the last page, some may come twice or be missing.
    pub passages: CursorPage<KnowledgePassage>,
    /// Parts of the base that were not searched, and the reason, in words; absent where all of it was.
    #[serde(default)]
    pub left_out: Option<String>,
}
