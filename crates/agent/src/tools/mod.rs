//! The tools the agent comes with.

mod artifact;
mod bash;
mod fs;
mod help;
mod subagent;
mod tape;
mod typed;

use std::sync::Arc;

use capstan_hooks::contracts::Tool;

/// Every built-in tool.
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(bash::tool().with_own_deadline()),
        Arc::new(fs::read().that_only_looks()),
        Arc::new(tape::info().that_only_looks()),
        Arc::new(tape::search().that_only_looks()),
        Arc::new(tape::handoff()),
        Arc::new(tape::anchors().that_only_looks()),
        Arc::new(artifact::read()),
        Arc::new(subagent::subagent()),
        Arc::new(help::tool().that_only_looks()),
    ]
}
