//! Listening channels, from their start until they end or are aborted.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelError, Gateway};
use futures::FutureExt as _;
use futures::future::join_all;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use capstan_delivery::ChannelDirectory;
use capstan_delivery::stop_channel;

/// Timeout of the wait for channels to stop. A channel may take longer, in the background.
const CHANNEL_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Tasks of the listening channels, aborted on drop.
pub(crate) struct ChannelListeners {
    tasks: TaskTracker,
    channels: Mutex<Vec<Arc<dyn Channel>>>,
    /// Errors of channels that failed.
    failures: Arc<Mutex<Vec<ChannelError>>>,
    abort_token: CancellationToken,
    _abort_on_drop: DropGuard,
}

impl Default for ChannelListeners {
    fn default() -> Self {
        let abort_token = CancellationToken::new();
        Self {
            tasks: TaskTracker::new(),
            channels: Mutex::default(),
            failures: Arc::default(),
            _abort_on_drop: abort_token.clone().drop_guard(),
            abort_token,
        }
    }
}

impl ChannelListeners {
    /// Starts a channel. A failed channel stops listening and does not affect the others.
    pub(crate) fn start_channel(
        &self,
        channel: Arc<dyn Channel>,
        gateway: Arc<dyn Gateway>,
        directory: ChannelDirectory,
    ) {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&channel));
        let failures = Arc::clone(&self.failures);
        let listening = async move {
            let started = AssertUnwindSafe(channel.start(gateway)).catch_unwind().await;
            let result = started.unwrap_or_else(|_| Err(ChannelError::new(channel.name(), "it crashed")));
            if let Err(error) = result {
                tracing::error!(%error, "a channel failed");
                directory.mark_stopped(&channel.name());
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        };
        self.tasks.spawn(self.abort_token.clone().run_until_cancelled_owned(listening));
    }

    /// Waits until every channel has ended, and returns the errors of those that failed.
    pub(crate) async fn wait_for_all(&self) -> Vec<ChannelError> {
        self.tasks.close();
        self.tasks.wait().await;
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks all channels at once to stop listening. Each channel is asked once.
    pub(crate) async fn request_stop(&self) {
        let channels = std::mem::take(&mut *self.channels.lock().unwrap_or_else(PoisonError::into_inner));
        let stops = channels.into_iter().map(|channel| {
            // Tracked with the listeners: a channel that hangs must not block this call.
            let stopping = async move { stop_channel(channel.as_ref()).await };
            self.tasks.spawn(self.abort_token.clone().run_until_cancelled_owned(stopping))
        });
        // Channels that need longer continue to stop in the background.
        let _timed_out = tokio::time::timeout(CHANNEL_STOP_TIMEOUT, join_all(stops.collect::<Vec<_>>())).await;
    }

    /// Aborts the channels that have not ended.
    pub(crate) fn abort(&self) {
        self.abort_token.cancel();
    }
}
