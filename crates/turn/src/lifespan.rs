//! Close of the lifespan of a message at the end of its turn.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_hooks::{InboundEvent, TurnLifespan};
use futures::FutureExt as _;

use crate::TurnError;

/// Timeout for closing the lifespan of a message.
const LIFESPAN_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Closes the lifespan of a message. A turn that failed before its prompt was built has not called `save_state`, which
/// would have closed the lifespan.
pub(crate) async fn close_lifespan(inbound: &InboundEvent, error: Option<&TurnError>) {
    let Some(lifespan) = inbound.extensions().get::<TurnLifespan>() else { return };
    let failure = error.map(ToString::to_string);
    let closing = AssertUnwindSafe(lifespan.close(failure.as_deref())).catch_unwind();
    match tokio::time::timeout(LIFESPAN_CLOSE_TIMEOUT, closing).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Err(_)) => tracing::error!("the lifespan of a message panicked when it was closed"),
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the lifespan of a message did not close"),
        Err(_) => tracing::warn!("the lifespan of a message did not close in time"),
    }
}
