//! Options of a host.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_hooks::contracts::IntakeOptions;
use capstan_protocol::{ChannelName, Clock, ModelId, ModelOptions, PluginName};

use capstan_runs::{RunLimits, RunOptions, WorkspaceDir};
use capstan_sessions::{LeaseOwner, SessionOptions};

use crate::SecretMasker;

/// Channel whose events come from the operator. A channel of the same name from another plugin is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedChannel {
    /// Plugin that provides the channel.
    pub plugin: PluginName,
    /// Name of the channel.
    pub channel: ChannelName,
}

/// Options of a host.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Workspace of its sessions.
    pub workspace: WorkspaceDir,
    /// Default model of a run.
    pub model: ModelId,
    /// Models to try, in order, if a model fails before the first token of its reply.
    pub fallback_models: Vec<ModelId>,
    /// Options of the default model.
    pub model_options: ModelOptions,
    /// Maximum size of the input of an event, in bytes.
    pub max_message_bytes: usize,
    /// Maximum duration of a run.
    pub run_timeout: Duration,
    /// Time for a cancelled run of a runner with the capability `interrupt` to yield its last results.
    pub cancel_grace: Duration,
    /// Timeout of the wait for a session that another process holds.
    pub session_wait_timeout: Duration,
    /// Age from which a message in the outbox is held for the operator; `None`: messages are never held.
    pub delivery_stale_after: Option<Duration>,
    /// Intake options that override those of a channel.
    pub intake_overrides: BTreeMap<ChannelName, IntakeOptions>,
    /// Channels whose events have a trusted origin. Events of all other channels are remote.
    pub trusted_channels: Vec<TrustedChannel>,
    /// Maximum number of queued events of one session.
    pub max_queued_events: usize,
    /// Maximum number of turns that run at the same time. Further ones wait, in order of arrival.
    pub max_active_turns: usize,
    /// Limits of a run.
    pub limits: RunLimits,
    /// Masks secrets in tool output.
    pub secret_masker: SecretMasker,
    /// Owner of the leases of this process.
    pub lease_owner: LeaseOwner,
    /// Clock of the host.
    pub clock: Clock,
}

impl HostOptions {
    /// Options with the defaults of the configuration, and an owner without a lock file.
    pub fn new(workspace: WorkspaceDir, model: ModelId) -> Self {
        Self {
            workspace,
            model,
            fallback_models: Vec::new(),
            model_options: ModelOptions::default(),
            max_message_bytes: 1 << 20,
            run_timeout: Duration::from_hours(1),
            cancel_grace: Duration::from_secs(2),
            session_wait_timeout: Duration::from_mins(1),
            delivery_stale_after: Some(Duration::from_hours(24)),
            intake_overrides: BTreeMap::new(),
            trusted_channels: Vec::new(),
            max_queued_events: 64,
            max_active_turns: 1000,
            limits: RunLimits::default(),
            secret_masker: SecretMasker::default(),
            lease_owner: LeaseOwner::anonymous(),
            clock: Clock::system(),
        }
    }

    /// Options of the runs of this host.
    pub(crate) fn run_options(&self) -> RunOptions {
        RunOptions {
            workspace: self.workspace.clone(),
            model: self.model.clone(),
            fallback_models: self.fallback_models.clone(),
            model_options: self.model_options.clone(),
            run_timeout: self.run_timeout,
            cancel_grace: self.cancel_grace,
            limits: self.limits,
            secret_masker: self.secret_masker.clone(),
            clock: self.clock.clone(),
        }
    }

    /// Options of the sessions of this host.
    pub(crate) fn session_options(&self) -> SessionOptions {
        SessionOptions {
            max_message_bytes: self.max_message_bytes,
            max_queued_events: self.max_queued_events,
            max_active_turns: self.max_active_turns,
            run_timeout: self.run_timeout,
            session_wait_timeout: self.session_wait_timeout,
            delivery_stale_after: self.delivery_stale_after,
            intake_overrides: self.intake_overrides.clone(),
            lease_owner: self.lease_owner.clone(),
            clock: self.clock.clone(),
        }
    }
}
