//! Knowledge sources and their queries.

use async_trait::async_trait;
use capstan_protocol::run_api::{KnowledgeBase, KnowledgePassage};

/// Knowledge base that can be queried. Plugins provide theirs with `provide_knowledge`. The host checks the grant of a
/// run before it passes a query on.
#[async_trait]
pub trait KnowledgeSource: Send + Sync + 'static {
    /// Id and description. Bindings grant the id, which does not change while the host runs.
    fn knowledge_base(&self) -> KnowledgeBase;

    /// Returns true if the source observes [`KnowledgeQuery::sources`]. The host refuses such queries to any other.
    fn filters_sources(&self) -> bool {
        false
    }

    /// Retrieves passages, the best match first. The order is stable for the same query as long as the source does not
    /// change.
    async fn retrieve(&self, query: KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError>;
}

/// Query to a knowledge source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnowledgeQuery {
    /// Text to search for.
    pub text: String,
    /// Number of passages to skip.
    pub offset: usize,
    /// Maximum number of passages to return.
    pub limit: usize,
    /// Sources to search, by name; a final `*` matches the rest of a name. Empty: all.
    pub sources: Vec<String>,
}

impl KnowledgeQuery {
    /// Returns true for a source of this name that the query searches.
    ///
    /// ```
    /// use capstan_hooks::contracts::KnowledgeQuery;
    ///
    /// let sources = vec!["guide/*".to_owned(), "faq.md".to_owned()];
    /// let query = KnowledgeQuery { sources, ..KnowledgeQuery::default() };
    /// assert!(query.covers("guide/start.md") && query.covers("faq.md"));
    /// assert!(!query.covers("guide") && !query.covers("old/faq.md"));
    /// assert!(KnowledgeQuery::default().covers("anything"));
    /// ```
    pub fn covers(&self, source: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => source.starts_with(prefix),
            None => source == pattern,
        };
        self.sources.is_empty() || self.sources.iter().any(matches)
    }
}

/// Result of a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetrievedPassages {
    /// Passages, the best match first.
    pub passages: Vec<KnowledgePassage>,
    /// Description of the parts of the source that were not searched, and the reason; `None` if all were.
    pub skipped: Option<String>,
}

/// Failure of a query. The message is returned to the runner and must not name paths of the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KnowledgeError(pub String);
