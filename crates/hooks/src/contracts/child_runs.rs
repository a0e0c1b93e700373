//! Child runs: what a run hands to another one that it begins.

use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::{AllowList, ApiError, Content, RunId, TapeName, Usage};

/// A piece of work for a child run. What is not set is left to what the run that asks has itself; nothing can be more.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRunCall {
    /// What it is asked. It sees nothing else of the conversation, but can search its tape.
    pub prompt: Content,
    /// The tools it may call.
    pub tools: AllowList,
    /// How many steps it may take.
    pub max_steps: Option<u32>,
    /// How many tokens it may use.
    pub max_tokens: Option<u64>,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

impl ChildRunCall {
    /// Work with this prompt, under no further limits.
    pub fn new(prompt: impl Into<Content>) -> Self {
        Self { prompt: prompt.into(), tools: AllowList::All, max_steps: None, max_tokens: None, timeout: None }
    }
}

/// A child run that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRunOutcome {
    /// The run, as the ledger knows it.
    pub run_id: RunId,
    /// Its tape, a fork that is closed now.
    pub tape: TapeName,
    /// What it said.
    pub text: String,
    /// What it used, as far as known.
    pub usage: Option<Usage>,
    /// Why it did not end well, if it did not.
    pub failure: Option<String>,
}

/// Runs, as a run may begin them.
#[async_trait]
pub trait RunsApi: Send + Sync + 'static {
    /// Runs the same runner on a fork of the tape, and waits for its end. Its budget comes out of this run's, it may do
    /// nothing that this run may not, and it ends with this run.
    async fn child(&self, call: ChildRunCall) -> Result<ChildRunOutcome, ApiError>;
}
