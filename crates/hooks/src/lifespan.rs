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
pub struct TurnLifespan {
    handler: Arc<dyn LifespanHandler>,
    open: Arc<AtomicBool>,
}

/// What a lifespan does at its ends.
#[async_trait]
pub trait LifespanHandler: Send + Sync + 'static {
    /// The message is taken up.
    async fn open(&self) -> Result<(), BoxError>;

    /// The message is done with; `failure` says what went wrong, if something did.
    async fn close(&self, failure: Option<&str>) -> Result<(), BoxError>;
}

impl TurnLifespan {
    /// A lifespan with these ends.
    pub fn new(scope: impl LifespanHandler) -> Self {
        Self { handler: Arc::new(scope), open: Arc::new(AtomicBool::new(false)) }
    }

    /// Opens it.
    pub async fn open(&self) -> Result<(), BoxError> {
        self.handler.open().await?;
        self.open.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Closes it, if it is open: it closes once, however many ways lead there.
    pub async fn close(&self, failure: Option<&str>) -> Result<(), BoxError> {
        if self.open.swap(false, Ordering::SeqCst) { self.handler.close(failure).await } else { Ok(()) }
    }
}
