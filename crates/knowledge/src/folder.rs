//! Folder of files as a knowledge base.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_hooks::contracts::{KnowledgeBase, KnowledgeError, KnowledgeQuery, KnowledgeSource, RetrievedPassages};
use tokio::sync::Semaphore;

use crate::folder_index::{FolderIndex, FolderIndexError};

/// Limits of what is searched of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderLimits {
    /// Maximum size of a file.
    pub max_file_bytes: u64,
    /// Maximum size of all files together.
    pub max_total_bytes: u64,
    /// Maximum number of files.
    pub max_files: usize,
    /// Maximum number of names of files and folders that are listed to find them.
    pub max_names: usize,
    /// Maximum depth of nested folders.
    pub max_depth: usize,
}

impl Default for FolderLimits {
    fn default() -> Self {
        Self {
            max_file_bytes: 1 << 20,
            max_total_bytes: 32 << 20,
            max_files: 10_000,
            max_names: 100_000,
            max_depth: 64,
        }
    }
}

/// Files of a folder as a knowledge base, searched by full text.
///
/// The first query indexes the folder in a temporary database. Every query sees the files as they are when it is made: the
/// folder is listed again, and files that changed are read again. Queries that wait at the same time share one listing.
///
/// Hidden files, files that `.gitignore` or `.ignore` files of the folder exclude, links, files that are not text and
/// everything beyond the limits are skipped. The result says how many were skipped and why, except for hidden and ignored
/// ones.
pub struct FolderKnowledge {
    base: KnowledgeBase,
    shared: Arc<SharedIndex>,
    /// Held by the query that uses the index. The others wait without blocking a thread.
    permits: Arc<Semaphore>,
}

/// Index that queries share.
struct SharedIndex {
    index: Mutex<FolderIndex>,
    /// Number of refreshes that have begun.
    refreshes: AtomicU64,
}

impl SharedIndex {
    /// Executes a query that was made after `refreshes_before` refreshes had begun.
    fn execute(
        &self,
        base: &str,
        query: &KnowledgeQuery,
        refreshes_before: u64,
    ) -> Result<RetrievedPassages, KnowledgeError> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = index.is_ready() && self.refreshes.load(Ordering::SeqCst) > refreshes_before;
        if !is_fresh {
            self.refreshes.fetch_add(1, Ordering::SeqCst);
            match index.refresh() {
                Ok(None) => {}
                Ok(Some(skipped)) => tracing::warn!(base, skipped, "a knowledge base is not searched in full"),
                Err(FolderIndexError::Folder(error)) => {
                    let path = index.path().display();
                    tracing::warn!(base, %path, %error, "the folder of a knowledge base cannot be read");
                    return Err(KnowledgeError("its folder cannot be read".to_owned()));
                }
                Err(FolderIndexError::Index(error)) => return Err(index_error(base, &error)),
            }
        }
        let passages = index.rank(query).map_err(|error| index_error(base, &error))?;
        Ok(RetrievedPassages { passages, skipped: index.skipped() })
    }
}

fn index_error(base: &str, error: &rusqlite::Error) -> KnowledgeError {
    tracing::warn!(base, %error, "the index of a knowledge base failed");
    KnowledgeError("its index failed".to_owned())
}

impl FolderKnowledge {
    /// Knowledge base over the folder at `path`, which need not exist yet. A query fails if the folder lies inside one of
    /// `excluded`; folders of `excluded` inside it are skipped.
    pub fn new(base: KnowledgeBase, path: PathBuf, excluded: Vec<PathBuf>, limits: FolderLimits) -> Self {
        let index = Mutex::new(FolderIndex::new(path, excluded, limits));
        let shared = Arc::new(SharedIndex { index, refreshes: AtomicU64::new(0) });
        Self { base, shared, permits: Arc::new(Semaphore::new(1)) }
    }
}

#[async_trait]
impl KnowledgeSource for FolderKnowledge {
    fn knowledge_base(&self) -> KnowledgeBase {
        self.base.clone()
    }

    fn filters_sources(&self) -> bool {
        true
    }

    async fn retrieve(&self, query: KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> {
        let refreshes_before = self.shared.refreshes.load(Ordering::SeqCst);
        // The semaphore is never closed. The caller has a deadline.
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|error| KnowledgeError(error.to_string()))?;
        let (shared, base) = (Arc::clone(&self.shared), self.base.id.clone());
        let result = tokio::task::spawn_blocking(move || {
            // Released when the work is done, also if the caller has given up.
            let _permit = permit;
            shared.execute(&base, &query, refreshes_before)
        });
        result.await.unwrap_or_else(|_| Err(KnowledgeError("it crashed".to_owned())))
    }
}
