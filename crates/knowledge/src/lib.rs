//! Knowledge bases that come with the host.
//!
//! [`FolderKnowledge`] is a [`KnowledgeSource`](capstan_hooks::contracts::KnowledgeSource) over the text files of one folder:
//! it follows changes of the folder, splits files into passages and ranks them by full text.
//!
//! Access control, paging, masking and time limits of `knowledge.retrieve` are not here: the run API applies them to every
//! source alike.

mod file_cache;
mod folder;
mod index;
mod passages;
mod skipped;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use folder::{FolderKnowledge, FolderLimits};
