//! Knowledge source of a plugin process.

use async_trait::async_trait;
use capstan_hooks::contracts::{KnowledgeBase, KnowledgeError, KnowledgeQuery, KnowledgeSource, RetrievedPassages};
use capstan_protocol::plugin_protocol::{
    PluginKnowledgeManifest, PluginKnowledgePassages, PluginKnowledgeSearch, method,
};

use crate::PluginProcess;
use crate::error::call_message;

/// Knowledge source of a plugin process.
pub(crate) struct KnowledgeProxy {
    process: PluginProcess,
    base: KnowledgeBase,
}

impl KnowledgeProxy {
    pub(crate) fn new(process: PluginProcess, source: &PluginKnowledgeManifest) -> Self {
        let base = KnowledgeBase { id: source.id.clone(), description: source.description.clone() };
        Self { process, base }
    }
}

#[async_trait]
impl KnowledgeSource for KnowledgeProxy {
    fn knowledge_base(&self) -> KnowledgeBase {
        self.base.clone()
    }

    async fn retrieve(&self, query: KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> {
        let (_, peer) = self.process.connect().await.map_err(|error| KnowledgeError(error.to_string()))?;
        let deadline = self.process.options().search_timeout;
        let params = PluginKnowledgeSearch {
            source: self.base.id.clone(),
            text: query.text,
            offset: query.offset,
            limit: query.limit,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        };
        let found = peer.request::<PluginKnowledgePassages>(method::KNOWLEDGE_SEARCH, &params, Some(deadline)).await;
        let mut found = found.map_err(|error| KnowledgeError(call_message(&error)))?;
        found.passages.truncate(query.limit);
        Ok(RetrievedPassages { passages: found.passages, skipped: found.skipped })
    }
}
