//! A folder of files as a knowledge base.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_hooks::contracts::{KnowledgeBase, KnowledgeError, KnowledgeQuery, KnowledgeSource, RetrievedPassages};
use tokio::sync::Semaphore;

use super::file_cache::FileCache;
use super::index;

/// How much of a folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderLimits {
    /// How large a file may be.
    pub max_file_bytes: u64,
    /// How large all of them may be together.
    pub max_total_bytes: u64,
    /// How many files.
    pub max_files: usize,
    /// How many names of files and folders are looked at to find them.
    pub max_names: usize,
    /// How many folders deep.
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

/// The files of a folder as a knowledge base: their full text, in memory from the first question on. Each question looks
/// first which files have changed, and reads those.
///
/// Hidden files, links and whatever is no text are left out, and so is what goes beyond the limits; every answer tells of
/// what was, except for hidden files.
pub struct FolderKnowledge {
    base: KnowledgeBase,
    file_cache: Arc<Mutex<FileCache>>,
    /// Whoever holds it looks at the files. The others wait without keeping a thread.
    refresh_permits: Arc<Semaphore>,
}

impl FolderKnowledge {
    /// The folder at this path, which need not be there yet. The closed folders stay closed also where they lie within it.
    pub fn new(base: KnowledgeBase, path: PathBuf, closed: Vec<PathBuf>, limits: FolderLimits) -> Self {
        let shelf = FileCache::new(path, closed, limits);
        Self { base, file_cache: Arc::new(Mutex::new(shelf)), refresh_permits: Arc::new(Semaphore::new(1)) }
    }
}

#[async_trait]
impl KnowledgeSource for FolderKnowledge {
    fn knowledge_base(&self) -> KnowledgeBase {
        self.base.clone()
    }

    async fn retrieve(&self, question: KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> {
        // It is never closed. Whoever asks has a deadline.
        let turn = Arc::clone(&self.refresh_permits).acquire_owned().await;
        let turn = turn.map_err(|error| KnowledgeError(error.to_string()))?;
        let (files, id) = (Arc::clone(&self.file_cache), self.base.id.clone());
        let answer = tokio::task::spawn_blocking(move || {
            // Also where nobody waits any more: the next one goes on when this is done.
            let _until_done = turn;
            let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
            let news = files.refresh().map_err(|error| {
                let path = files.path().display();
                tracing::warn!(base = id, %path, %error, "the folder of a knowledge base cannot be read");
                KnowledgeError("its folder cannot be read".to_owned())
            })?;
            if let Some(left_out) = news {
                tracing::warn!(base = id, left_out, "a knowledge base is not searched in full");
            }
            let passages = index::rank_passages(&files.documents(), &question.text, question.offset, question.limit);
            Ok(RetrievedPassages { passages, left_out: files.skipped() })
        });
        answer.await.unwrap_or_else(|_| Err(KnowledgeError("it crashed".to_owned())))
    }
}
