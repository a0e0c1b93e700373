//! What a host is set to.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_hooks::contracts::IntakeOptions;
use capstan_protocol::{ChannelName, Clock, ModelId, ModelOptions};

use capstan_runs::{RunLimits, RunOptions, WorkspaceDir};
use capstan_sessions::{LeaseOwner, SessionOptions};

use crate::SecretMasker;

/// What a host is set to.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The workspace its sessions work in.
    pub workspace: WorkspaceDir,
    /// The model a run uses when nobody says otherwise.
    pub model: ModelId,
    /// The models to try, in order, when that one fails before its first word.
    pub fallback_models: Vec<ModelId>,
    /// How that model should answer.
    pub model_options: ModelOptions,
    /// The largest input an event may carry, in bytes.
    pub max_message_bytes: usize,
    /// How long a run may take.
    pub run_timeout: Duration,
    /// How long an event waits for its session when another process works on it.
    pub session_wait_timeout: Duration,
    /// How what a channel hears is taken in, where that is not left to the channel.
    pub intake_overrides: BTreeMap<ChannelName, IntakeOptions>,
    /// How many events of a session may wait for their turn.
    pub max_queued_events: usize,
    /// How much a run may do.
    pub limits: RunLimits,
    /// What no tool output may show.
    pub secret_masker: SecretMasker,
    /// Who holds the leases of this process.
    pub lease_owner: LeaseOwner,
    /// The clock.
    pub clock: Clock,
}

impl HostOptions {
    /// Options of the runs of this host.
    pub(crate) fn run_options(&self) -> RunOptions {
        RunOptions {
            workspace: self.workspace.clone(),
            model: self.model.clone(),
            fallback_models: self.fallback_models.clone(),
            model_options: self.model_options.clone(),
            run_timeout: self.run_timeout,
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
            run_timeout: self.run_timeout,
            session_wait_timeout: self.session_wait_timeout,
            intake_overrides: self.intake_overrides.clone(),
            lease_owner: self.lease_owner.clone(),
            clock: self.clock.clone(),
        }
    }
}
