//! A scope that lasts as long as a message is worked on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::BoxError;

/// Opened in `load_state`, closed in `save_state`, which knows whether the turn failed.
///
/// A channel puts an `Arc<dyn LifespanScope>` wrapped in this type into an inbound's extensions, for a typing
/// indicator or a lock that must not outlive the turn.
#[derive(Clone)]
pub struct Lifespan {
    scope: Arc<dyn LifespanScope>,
    open: Arc<AtomicBool>,
}

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
        Self { scope: Arc::new(scope), open: Arc::new(AtomicBool::new(false)) }
    }

    /// Opens it.
    pub async fn open(&self) -> Result<(), BoxError> {
        self.scope.open().await?;
        self.open.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Closes it, if it is open: it closes once, however many ways lead there.
    pub async fn close(&self, failure: Option<&str>) -> Result<(), BoxError> {
        if self.open.swap(false, Ordering::SeqCst) { self.scope.close(failure).await } else { Ok(()) }
    }
}
