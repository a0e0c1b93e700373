//! The channels that listen, from the moment they are let to until they end or are ended.

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

/// How long a channel is waited for when it is told to take nothing more. It may go on for longer.
const CHANNEL_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The channels that listen. When it is dropped they are ended.
pub(crate) struct ChannelListeners {
    tasks: TaskTracker,
    channels: Mutex<Vec<Arc<dyn Channel>>>,
    /// What ended a channel that should have gone on.
    failures: Arc<Mutex<Vec<ChannelError>>>,
    abort_token: CancellationToken,
    _abort_on_drop: DropGuard,
}

impl Default for ChannelListeners {
    fn default() -> Self {
        let abandoned = CancellationToken::new();
        Self {
            tasks: TaskTracker::new(),
            channels: Mutex::default(),
            failures: Arc::default(),
            _abort_on_drop: abandoned.clone().drop_guard(),
            abort_token: abandoned,
        }
    }
}

impl ChannelListeners {
    /// Lets a channel listen. One that fails does not listen any more, and does not affect the others.
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
            let ended = started.unwrap_or_else(|_| Err(ChannelError::new(channel.name(), "it crashed")));
            if let Err(error) = ended {
                tracing::error!(%error, "a channel failed");
                directory.mark_stopped(&channel.name());
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        };
        self.tasks.spawn(self.abort_token.clone().run_until_cancelled_owned(listening));
    }

    /// Returns when every channel has ended, with what made those end that failed.
    pub(crate) async fn wait_for_all(&self) -> Vec<ChannelError> {
        self.tasks.close();
        self.tasks.wait().await;
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the channels to take nothing more, all at once. They are told once.
    pub(crate) async fn request_stop(&self) {
        let channels = std::mem::take(&mut *self.channels.lock().unwrap_or_else(PoisonError::into_inner));
        let told = channels.into_iter().map(|channel| {
            // It ends with those that listen: one that hangs must not hold up who tells it.
            let stopping = async move { stop_channel(channel.as_ref()).await };
            self.tasks.spawn(self.abort_token.clone().run_until_cancelled_owned(stopping))
        });
        // What is not heard in time may still be.
        let _heard = tokio::time::timeout(CHANNEL_STOP_TIMEOUT, join_all(told.collect::<Vec<_>>())).await;
    }

    /// Ends those that are still there.
    pub(crate) fn abort(&self) {
        self.abort_token.cancel();
    }
}
