//! Knowledge bases that come with the host: the files of a folder, by full text.

mod folder;
mod index;
mod left_out;
mod passages;
mod shelf;
mod terms;
#[cfg(test)]
mod tests;

pub use folder::{Folder, FolderLimits};
