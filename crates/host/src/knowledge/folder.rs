//! A folder of files as a knowledge base.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_hooks::contracts::{KnowledgeBase, KnowledgeError, KnowledgeSource, Question, Retrieved};
use tokio::sync::Semaphore;

use super::index;
use super::shelf::Shelf;

/// How much of a folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderLimits {
    /// How large a file may be.
    pub file_bytes: u64,
    /// How large all of them may be together.
    pub total_bytes: u64,
    /// How many files.
    pub files: usize,
    /// How many names of files and folders are looked at to find them.
    pub names: usize,
    /// How many folders deep.
    pub depth: usize,
}

impl Default for FolderLimits {
    fn default() -> Self {
        Self { file_bytes: 1 << 20, total_bytes: 32 << 20, files: 10_000, names: 100_000, depth: 64 }
    }
}

/// The files of a folder as a knowledge base: their full text, in memory from the first question on. Each question looks
/// first which files have changed, and reads those.
///
/// Hidden files, links and whatever is no text are left out, and so is what goes beyond the limits; every answer tells of
/// what was, except for hidden files.
pub struct Folder {
    base: KnowledgeBase,
    shelf: Arc<Mutex<Shelf>>,
    /// Whoever holds it looks at the files. The others wait without keeping a thread.
    turn: Arc<Semaphore>,
}

impl Folder {
    /// The folder at this path, which need not be there yet. The closed folders stay closed also where they lie within it.
    pub fn new(base: KnowledgeBase, path: PathBuf, closed: Vec<PathBuf>, limits: FolderLimits) -> Self {
        let shelf = Shelf::new(path, closed, limits);
        Self { base, shelf: Arc::new(Mutex::new(shelf)), turn: Arc::new(Semaphore::new(1)) }
    }
}

#[async_trait]
impl KnowledgeSource for Folder {
    fn base(&self) -> KnowledgeBase {
        self.base.clone()
    }

    async fn retrieve(&self, question: Question) -> Result<Retrieved, KnowledgeError> {
        // It is never closed. Whoever asks has a deadline.
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let turn = turn.map_err(|error| KnowledgeError(error.to_string()))?;
        let (files, id) = (Arc::clone(&self.shelf), self.base.id.clone());
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
            let passages = index::ask(&files.documents(), &question.text, question.offset, question.limit);
            Ok(Retrieved { passages, left_out: files.left_out() })
        });
        answer.await.unwrap_or_else(|_| Err(KnowledgeError("it crashed".to_owned())))
    }
}
