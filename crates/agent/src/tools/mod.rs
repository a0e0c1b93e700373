//! The tools the agent comes with.

mod bash;
mod fs;
mod help;
mod tape;
mod typed;

use std::sync::Arc;

use capstan_hooks::contracts::Tool;

/// Every built-in tool.
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(bash::tool()),
        Arc::new(fs::read()),
        Arc::new(tape::info()),
        Arc::new(tape::search()),
        Arc::new(tape::handoff()),
        Arc::new(tape::anchors()),
        Arc::new(help::tool()),
    ]
}
