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
    /// Text of the question.
    pub question: String,
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of passages, at least 1.
    pub limit: usize,
    /// Sources to search, by name; a final `*` matches the rest of a name. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
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
    /// Relevance, on a scale of the knowledge base: higher is better.
    pub score: f64,
}

/// A page of passages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievedPage {
    /// The passages, best first. If the base has changed since the previous page, passages may be repeated or missing.
    pub passages: CursorPage<KnowledgePassage>,
    /// Parts of the base that were not searched, with the reason; absent if the whole base was searched.
    #[serde(default, rename = "left_out")]
    pub skipped: Option<String>,
}
