//! Options and limits of runs.

use std::path::PathBuf;
use std::time::Duration;

use capstan_hooks::SecretMasker;
use capstan_protocol::{Clock, ModelId, ModelOptions};

use crate::api_limits::ApiLimits;

/// Options of the runs of a host.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Workspace of the sessions.
    pub workspace: WorkspaceDir,
    /// Default model of a run.
    pub model: ModelId,
    /// Models to try, in order, if a model fails before the first token of its reply.
    pub fallback_models: Vec<ModelId>,
    /// Options of the default model.
    pub model_options: ModelOptions,
    /// Maximum duration of a run.
    pub run_timeout: Duration,
    /// Time for a cancelled run of a runner with the capability `interrupt` to yield its last results.
    pub cancel_grace: Duration,
    /// Limits of a run.
    pub limits: RunLimits,
    /// Masks secrets in tool output.
    pub secret_masker: SecretMasker,
    /// Clock of the host.
    pub clock: Clock,
}

/// Limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Maximum duration of a tool call.
    pub tool_timeout: Duration,
    /// Maximum duration of a platform action. The outcome of an action that takes longer is unknown.
    pub action_timeout: Duration,
    /// Maximum length of the text of a tool result, in bytes. A longer one is stored as an artifact, and the model gets
    /// a preview.
    pub spill_bytes: usize,
    /// Maximum number of model calls of a run, including its child runs.
    pub max_steps: u32,
    /// Maximum number of tokens of a run, including its child runs.
    pub max_run_tokens: Option<u64>,
    /// Maximum size of the artifacts that a run and its child runs create, together, in bytes.
    pub max_artifact_bytes: u64,
    /// Limits of calls to the run API.
    pub api: ApiLimits,
    /// Limits of results.
    pub results: ResultLimits,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            tool_timeout: Duration::from_mins(10),
            action_timeout: Duration::from_mins(1),
            spill_bytes: 32 * 1024,
            max_steps: 50,
            max_run_tokens: None,
            max_artifact_bytes: 256 << 20,
            api: ApiLimits::default(),
            results: ResultLimits::default(),
        }
    }
}

/// Limits of the results of a runner. A result that is too large is dropped; a run that exceeds a total is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultLimits {
    /// Maximum length of a delta, in bytes.
    pub delta_bytes: u64,
    /// Maximum length of a message, in bytes: whole, or all its deltas together.
    pub message_bytes: u64,
    /// Maximum size of a reported tool call and of its result, in bytes.
    pub tool_bytes: u64,
    /// Maximum size of a state update and of an action request, in bytes.
    pub state_bytes: u64,
    /// Maximum size of an artifact in a result, in bytes.
    pub artifact_bytes: u64,
    /// Maximum length of an error message, in bytes. A longer one is truncated.
    pub error_bytes: u64,
    /// Maximum size of all results of a run, in bytes.
    pub total_bytes: u64,
    /// Maximum number of results of a run.
    pub count: u64,
    /// Maximum number of results that are written to the tape: all except deltas.
    pub entries: u64,
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self {
            delta_bytes: 1 << 20,
            // The longest reply of a model, with some room for its JSON encoding.
            message_bytes: 10 << 20,
            tool_bytes: 4 << 20,
            state_bytes: 1 << 20,
            artifact_bytes: 16 << 20,
            error_bytes: 8 << 10,
            total_bytes: 64 << 20,
            count: 1_000_000,
            entries: 20_000,
        }
    }
}

/// Directory of a workspace, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceDir {
    /// The resolved directory.
    pub path: PathBuf,
}

impl WorkspaceDir {
    /// The path as text, which identifies the workspace when it is first used.
    pub fn to_text(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}
