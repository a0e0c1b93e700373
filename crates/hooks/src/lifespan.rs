//! Scope that lasts for one turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::BoxError;

/// Scope that opens in `load_state` and closes in `save_state`, with the error of the turn if it failed.
///
/// A channel inserts a lifespan into the [extensions](crate::InboundEvent::extensions) of an event, for example for a
/// typing indicator or for a lock that must not outlive the turn.
#[derive(Clone)]
pub struct TurnLifespan {
    handler: Arc<dyn LifespanHandler>,
    is_open: Arc<AtomicBool>,
}

/// Actions at the beginning and the end of a lifespan.
#[async_trait]
pub trait LifespanHandler: Send + Sync + 'static {
    /// Called when the turn begins.
    async fn open(&self) -> Result<(), BoxError>;

    /// Called when the turn ends; `failure` is its error, if any.
    async fn close(&self, failure: Option<&str>) -> Result<(), BoxError>;
}

impl TurnLifespan {
    /// Creates a lifespan that is not open yet.
    pub fn new(handler: impl LifespanHandler) -> Self {
        Self { handler: Arc::new(handler), is_open: Arc::new(AtomicBool::new(false)) }
    }

    /// Opens the lifespan.
    pub async fn open(&self) -> Result<(), BoxError> {
        self.handler.open().await?;
        self.is_open.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Closes the lifespan if it is open. A second call does nothing.
    pub async fn close(&self, failure: Option<&str>) -> Result<(), BoxError> {
        if self.is_open.swap(false, Ordering::SeqCst) { self.handler.close(failure).await } else { Ok(()) }
    }
}
