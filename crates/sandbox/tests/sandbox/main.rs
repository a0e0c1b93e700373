//! Process trees of real processes.

mod closed_folders;
mod ending;
mod launching;
mod limits;
mod missing_namespaces;
mod support;
mod unprivileged;
