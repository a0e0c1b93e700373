//! Tools, as they are written on a wire.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::contracts::ToolList;
use capstan_protocol::ToolSpec;

use super::WireProtocol;

/// The tools of the last request, as they were written: they are many, and in most requests the same.
#[derive(Debug, Default)]
pub(crate) struct EncodedToolsCache(Mutex<LastEncodedTools>);

#[derive(Debug, Default)]
struct LastEncodedTools {
    tools: Arc<[ToolSpec]>,
    encoded: ToolList,
}

impl EncodedToolsCache {
    /// The tools of a request on this wire, which must be the same each time.
    pub(crate) fn get_or_encode(&self, wire: WireProtocol, tools: &Arc<[ToolSpec]>) -> ToolList {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.tools, tools) && last.tools != *tools {
            *last = LastEncodedTools { tools: Arc::clone(tools), encoded: wire.encode_tools(tools) };
        }
        last.encoded.clone()
    }
}
