//! Sources of knowledge, and what they are asked.

use async_trait::async_trait;
use capstan_protocol::run_api::{KnowledgeBase, KnowledgePassage};

/// A knowledge base that can be asked. Plugins bring theirs with `provide_knowledge`; whether a run may ask it is decided
/// before it hears of the question.
#[async_trait]
pub trait KnowledgeSource: Send + Sync + 'static {
    /// What it is. The id is what bindings grant, and stays the same as long as the host runs.
    fn knowledge_base(&self) -> KnowledgeBase;

    /// What fits a question best, the best first. The same question gives the same order as long as the source stays as it
    /// is.
    async fn retrieve(&self, question: KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError>;
}

/// What a source is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnowledgeQuery {
    /// The words of the question.
    pub text: String,
    /// How many of the best passages are known already.
    pub offset: usize,
    /// How many after those are wanted at most.
    pub limit: usize,
}

/// What a source says to a question.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetrievedPassages {
    /// The passages, the best first.
    pub passages: Vec<KnowledgePassage>,
    /// What of the source was not looked at and why, in words; none where all of it was.
    pub left_out: Option<String>,
}

/// Why a source has no answer. Its words reach the runner: they name no path of the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KnowledgeError(pub String);
