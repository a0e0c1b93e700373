//! Tools, as they are written on a wire.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::contracts::ToolList;
use capstan_protocol::ToolSpec;

use super::Wire;

/// The tools of the last request, as they were written: they are many, and in most requests the same.
#[derive(Debug, Default)]
pub(crate) struct WrittenTools(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    tools: Arc<[ToolSpec]>,
    written: ToolList,
}

impl WrittenTools {
    /// The tools of a request on this wire, which must be the same each time.
    pub(crate) fn on(&self, wire: Wire, tools: &Arc<[ToolSpec]>) -> ToolList {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.tools, tools) && last.tools != *tools {
            *last = Last { tools: Arc::clone(tools), written: wire.tools(tools) };
        }
        last.written.clone()
    }
}
