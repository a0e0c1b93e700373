//! Tools: what a model or a person can have done.

use std::future::Future;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use capstan_protocol::{JsonObject, ToolName, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::RunApi;
use crate::SecretMasker;

/// Something that can be called by name with JSON arguments.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is, for a model and for `help`.
    fn spec(&self) -> ToolSpec;

    /// Whether it only looks and changes nothing: as a command it may run beside a turn.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What a call with these arguments, in this workspace, has to do with the other calls of its step: whether they may
    /// run at the same time. It is asked before any call of the step is made.
    fn effect(&self, arguments: &JsonObject, workspace: &Path) -> ToolEffect {
        let _ = (arguments, workspace);
        if self.is_read_only() { ToolEffect::Reads } else { ToolEffect::Unrestricted }
    }

    /// Whether it sees to it itself that a call ends in time. The host's own limit for a call is not applied then; the
    /// run's deadline is.
    fn has_own_deadline(&self) -> bool {
        false
    }

    /// Whether it asks knowledge bases: it is there only for runs that may ask one.
    fn needs_knowledge(&self) -> bool {
        false
    }

    /// Calls it. An error is told to the model, which may try again.
    async fn call(&self, arguments: JsonObject, context: ToolContext) -> Result<ToolOutput, ToolError>;
}

/// What a call has to do with the other calls of its step. Calls that have nothing to do with each other run at the same
/// time; the others one after another, in the order in which the model asked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEffect {
    /// Nothing that another call could see or change.
    None,
    /// It looks at what others may change, and changes nothing.
    Reads,
    /// It changes this one thing, such as a file.
    Writes(String),
    /// It may change anything.
    Unrestricted,
}

impl ToolEffect {
    /// Whether two calls must keep their order.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::None) | (Self::Reads, Self::Reads) => false,
            (Self::Writes(thing), Self::Writes(other)) => thing == other,
            (Self::Reads | Self::Writes(_) | Self::Unrestricted, _) => true,
        }
    }
}

/// Where a tool is called.
#[derive(Clone)]
pub struct ToolContext {
    /// The workspace directory.
    pub workspace: PathBuf,
    /// The host, under the grant of the run that calls.
    pub api: RunApi,
    /// Fires when the run is cancelled: a tool that waits must watch it.
    pub cancel_token: CancellationToken,
    /// What the host masks in the answer. It finds what is whole: a tool that shows a part of a text asks where to cut it.
    pub secrets: SecretMasker,
}

/// Why a tool did not do what it was asked, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

impl ToolError {
    /// An error in words for the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// What a tool made from a function does.
type ToolHandler =
    Box<dyn Fn(JsonObject, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync>;

/// A tool made from a function.
pub struct FnTool {
    spec: ToolSpec,
    is_read_only: bool,
    effect: Option<fn(&JsonObject, &Path) -> ToolEffect>,
    has_own_deadline: bool,
    needs_knowledge: bool,
    handler: ToolHandler,
}

impl FnTool {
    /// A tool with this name, description, JSON Schema of its arguments, and action.
    pub fn new<F, Fut>(name: &str, description: &str, parameters: Value, action: F) -> Self
    where
        F: Fn(JsonObject, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let spec =
            ToolSpec { name: ToolName::new(name), description: description.to_owned(), parameters: parameters.into() };
        let action: ToolHandler = Box::new(move |arguments, context| Box::pin(action(arguments, context)));
        Self {
            spec,
            is_read_only: false,
            effect: None,
            has_own_deadline: false,
            needs_knowledge: false,
            handler: action,
        }
    }

    /// The same tool, which only looks and changes nothing.
    pub fn with_read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// The same tool, which says of each call what it touches.
    pub fn with_effect(self, touches: fn(&JsonObject, &Path) -> ToolEffect) -> Self {
        Self { effect: Some(touches), ..self }
    }

    /// The same tool, which sees to its own time.
    pub fn with_own_deadline(self) -> Self {
        Self { has_own_deadline: true, ..self }
    }

    /// The same tool, which asks knowledge bases.
    pub fn with_knowledge(self) -> Self {
        Self { needs_knowledge: true, ..self }
    }
}

#[async_trait]
impl Tool for FnTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn effect(&self, arguments: &JsonObject, workspace: &Path) -> ToolEffect {
        let looks = if self.is_read_only { ToolEffect::Reads } else { ToolEffect::Unrestricted };
        self.effect.map_or(looks, |touches| touches(arguments, workspace))
    }

    fn has_own_deadline(&self) -> bool {
        self.has_own_deadline
    }

    fn needs_knowledge(&self) -> bool {
        self.needs_knowledge
    }

    async fn call(&self, arguments: JsonObject, context: ToolContext) -> Result<ToolOutput, ToolError> {
        (self.handler)(arguments, context).await
    }
}
