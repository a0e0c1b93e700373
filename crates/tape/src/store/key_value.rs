//! Values stored under a key.

use async_trait::async_trait;
use capstan_protocol::{JsonObject, TapeName, WorkspaceId};

use super::RowPages;
use crate::{KeyValueRecord, NamespaceRecord, StoreError};

/// Values stored under a key: namespaces of key-value pairs, the state of sessions, the identities of workspaces.
#[async_trait]
pub trait KeyValueStore: Send + Sync + 'static {
    /// Value of a key in a namespace.
    async fn key_value(&self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError>;

    /// Values of a namespace with keys after `after`, ordered by key, at most `limit`.
    async fn key_value_page(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError>;

    /// All values of a namespace, ordered by key.
    fn key_values(&self, namespace: &str) -> RowPages<'_, KeyValueRecord> {
        let namespace = namespace.to_owned();
        RowPages::new(move |after: Option<KeyValueRecord>, limit| {
            let namespace = namespace.clone();
            let after = after.map(|record| record.key);
            Box::pin(async move { self.key_value_page(&namespace, after.as_deref(), limit).await })
        })
    }

    /// Namespace with this name, if a value was ever stored in it.
    async fn namespace(&self, name: &str) -> Result<Option<NamespaceRecord>, StoreError>;

    /// Namespaces with names that start with `prefix` and come after `after`, ordered by name, at most `limit`.
    async fn namespace_page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError>;

    /// All namespaces with names that start with `prefix`, ordered by name.
    fn namespaces(&self, prefix: &str) -> RowPages<'_, NamespaceRecord> {
        let prefix = prefix.to_owned();
        RowPages::new(move |after: Option<NamespaceRecord>, limit| {
            let prefix = prefix.clone();
            let after = after.map(|record| record.space);
            Box::pin(async move { self.namespace_page(&prefix, after.as_deref(), limit).await })
        })
    }

    /// State of the session of a tape.
    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError>;

    /// Identity of a workspace by its resolved path.
    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError>;
}
