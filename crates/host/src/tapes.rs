//! Tapes and identity of a workspace.

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::points::ProvideTapeStore;
use capstan_protocol::WorkspaceId;
use capstan_tape::{Batch, Fact, Store, TapeRepository};

use crate::HostError;

/// Opens the tapes of a host: in the store, or in the tape store that a plugin or the configuration provides. The caller
/// closes them.
pub fn open_tapes(hooks: &HookRuntime, store: Arc<dyn Store>) -> Result<TapeRepository, HostError> {
    Ok(match hooks.call_first_sync::<ProvideTapeStore>(&())? {
        None => TapeRepository::new(store),
        Some(provided) => TapeRepository::with_external_store(store, provided.value),
    })
}

/// Resolves the identity of a workspace: its path when it was first seen.
pub(crate) async fn resolve_workspace_id(store: &dyn Store, path: &str) -> Result<WorkspaceId, HostError> {
    if let Some(identity) = store.workspace(path).await? {
        return Ok(identity);
    }
    let identity = WorkspaceId::new(path);
    let mut batch = Batch::new();
    batch.push(Fact::RegisterWorkspace { path: path.to_owned(), identity });
    store.commit(batch).await?;
    // Another process may have been first: the stored identity counts.
    Ok(store.workspace(path).await?.unwrap_or_else(|| WorkspaceId::new(path)))
}
