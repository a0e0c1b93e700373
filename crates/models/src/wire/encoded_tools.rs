//! Cache of encoded tools.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::contracts::ToolList;
use capstan_protocol::ToolSpec;

use super::WireProtocol;

/// Encoded tools of the last request: they are large, and most requests have the same ones.
#[derive(Debug, Default)]
pub(crate) struct EncodedToolsCache(Mutex<LastEncodedTools>);

#[derive(Debug, Default)]
struct LastEncodedTools {
    tools: Arc<[ToolSpec]>,
    encoded: ToolList,
}

impl EncodedToolsCache {
    /// Encoded tools of a request. The protocol must be the same for every call.
    pub(crate) fn get_or_encode(&self, wire: WireProtocol, tools: &Arc<[ToolSpec]>) -> ToolList {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.tools, tools) && last.tools != *tools {
            *last = LastEncodedTools { tools: Arc::clone(tools), encoded: wire.encode_tools(tools) };
        }
        last.encoded.clone()
    }
}
