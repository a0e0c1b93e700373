//! Process trees of real processes.

mod ending;
mod launching;
mod support;
