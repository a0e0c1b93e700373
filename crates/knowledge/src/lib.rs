//! Knowledge bases that come with the host.
//!
//! [`FolderKnowledge`] is a [`KnowledgeSource`](capstan_hooks::contracts::KnowledgeSource) over the text files of one folder:
//! it picks up changes, splits files into passages and ranks passages by full-text relevance.
//!
//! Access control, paging, masking and time limits of `knowledge.retrieve` are the job of the run API, which applies them
//! to every source.
//!
//! A query passes through `folder_walk` (names and change stamps of the files, ignore rules applied), `folder_index`
//! (reads the files that changed) and `passage_index` (an FTS5 index in a temporary database).

mod file_stamp;
mod folder;
mod folder_index;
mod folder_walk;
mod passage_index;
mod passages;
mod skipped_files;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use folder::{FolderKnowledge, FolderLimits};
