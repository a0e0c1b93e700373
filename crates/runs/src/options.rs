//! Options and limits of runs.

use std::path::PathBuf;
use std::time::Duration;

use capstan_hooks::SecretMasker;
use capstan_protocol::{Clock, ModelId, ModelOptions};

use crate::api_limits::ApiLimits;

/// Options of every run of a host.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Workspace that sessions work in.
    pub workspace: WorkspaceDir,
    /// Default model.
    pub model: ModelId,
    /// Models to try, in order, when that one fails before its first token.
    pub fallback_models: Vec<ModelId>,
    /// Options of the default model.
    pub model_options: ModelOptions,
    /// Timeout of a run.
    pub run_timeout: Duration,
    /// Limits of a run.
    pub limits: RunLimits,
    /// Masks secrets in tool output.
    pub secret_masker: SecretMasker,
    /// Clock.
    pub clock: Clock,
}

/// How much a run may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// How long a tool may take to answer.
    pub tool_timeout: Duration,
    /// How long a channel may take to do an action. What becomes of one that takes longer is not known.
    pub action_timeout: Duration,
    /// How long the text of a tool's answer may be, in bytes. What is longer is kept as an artifact, and the model gets
    /// a preview.
    pub spill_bytes: usize,
    /// How many model calls a run may make, those of its child runs included.
    pub max_steps: u32,
    /// How many tokens a run may use, those of its child runs included.
    pub max_run_tokens: Option<u64>,
    /// How much it may ask of the host.
    pub api: ApiLimits,
    /// How much a runner may yield.
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
            api: ApiLimits::default(),
            results: ResultLimits::default(),
        }
    }
}

/// How much a runner may yield. A result that is too large is left out; a runner that yields too much in all has its run
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultLimits {
    /// The longest delta, in bytes.
    pub delta_bytes: u64,
    /// The longest message, in bytes: whole, or all its deltas together.
    pub message_bytes: u64,
    /// The largest call of a runner's own tools, and the largest answer, in bytes.
    pub tool_bytes: u64,
    /// The largest update of state and the largest request of an action, in bytes.
    pub state_bytes: u64,
    /// The largest artifact that is handed over as a result, in bytes.
    pub artifact_bytes: u64,
    /// The longest message of an error, in bytes. What is longer is cut.
    pub error_bytes: u64,
    /// How many bytes all results of a run may have together.
    pub total_bytes: u64,
    /// How many results a run may have.
    pub count: u64,
    /// How many of them may be for the tape: all but deltas.
    pub entries: u64,
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self {
            delta_bytes: 1 << 20,
            // The longest answer of a model, and some of what JSON makes of it.
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

/// A workspace: the directory, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceDir {
    /// The resolved directory.
    pub path: PathBuf,
}

impl WorkspaceDir {
    /// The path as text; it names the workspace when it is first seen.
    pub fn to_text(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}
