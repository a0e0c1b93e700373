//! A scope that lasts as long as a message is worked on.

use std::sync::Arc;

use async_trait::async_trait;

use crate::BoxError;

/// Opened in `load_state`, closed in `save_state`, which knows whether the turn failed.
///
/// A channel puts an `Arc<dyn LifespanScope>` wrapped in this type into an inbound's extensions, for a typing
/// indicator or a lock that must not outlive the turn.
#[derive(Clone)]
pub struct Lifespan(Arc<dyn LifespanScope>);

/// What a lifespan does at its ends.
#[async_trait]
pub trait LifespanScope: Send + Sync + 'static {
    /// The message is taken up.
    async fn open(&self) -> Result<(), BoxError>;

    /// The message is done with; `failure` says what went wrong, if something did.
    async fn close(&self, failure: Option<&str>) -> Result<(), BoxError>;
}

impl Lifespan {
    /// A lifespan with these ends.
    pub fn new(scope: impl LifespanScope) -> Self {
        Self(Arc::new(scope))
    }

    /// Opens it.
    pub async fn open(&self) -> Result<(), BoxError> {
        self.0.open().await
    }

    /// Closes it.
    pub async fn close(&self, failure: Option<&str>) -> Result<(), BoxError> {
        self.0.close(failure).await
    }
}
