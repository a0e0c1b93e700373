//! Knowledge bases that come with the host: the files of a folder, by full text.

mod file_cache;
mod folder;
mod index;
mod passages;
mod skipped;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use folder::{FolderKnowledge, FolderLimits};
