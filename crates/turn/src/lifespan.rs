//! Close of the lifespan of a message at the end of its turn.

use std::time::Duration;

use capstan_hooks::{InboundEvent, TurnLifespan};

use crate::TurnError;

/// Timeout for closing the lifespan of a message.
const LIFESPAN_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Closes the lifespan of a message. A turn that failed before its prompt was built has not called `save_state`, which
/// would have closed the lifespan.
pub(crate) async fn close_lifespan(inbound: &InboundEvent, error: Option<&TurnError>) {
    let Some(lifespan) = inbound.extensions().get::<TurnLifespan>() else { return };
    let failure = error.map(ToString::to_string);
    match tokio::time::timeout(LIFESPAN_CLOSE_TIMEOUT, lifespan.close(failure.as_deref())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the lifespan of a message did not close"),
        Err(_) => tracing::warn!("the lifespan of a message did not close in time"),
    }
}
