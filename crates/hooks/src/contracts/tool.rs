//! Tools: what a model or a person can have done.

use std::future::Future;
use std::path::PathBuf;

use async_trait::async_trait;
use capstan_protocol::{Map, ToolName, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::RunApi;

/// Something that can be called by name with JSON arguments.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is, for a model and for `help`.
    fn spec(&self) -> ToolSpec;

    /// Whether it only looks and changes nothing: as a command it may run beside a turn.
    fn only_looks(&self) -> bool {
        false
    }

    /// Calls it. An error is told to the model, which may try again.
    async fn call(&self, arguments: Map, context: ToolContext) -> Result<ToolOutput, ToolError>;
}

/// Where a tool is called.
#[derive(Clone)]
pub struct ToolContext {
    /// The workspace directory.
    pub workspace: PathBuf,
    /// The host, under the grant of the run that calls.
    pub api: RunApi,
    /// Fires when the run is cancelled: a tool that waits must watch it.
    pub cancelled: CancellationToken,
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
type Action = Box<dyn Fn(Map, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync>;

/// A tool made from a function.
pub struct FnTool {
    spec: ToolSpec,
    only_looks: bool,
    action: Action,
}

impl FnTool {
    /// A tool with this name, description, JSON Schema of its arguments, and action.
    pub fn new<F, Fut>(name: &str, description: &str, parameters: Value, action: F) -> Self
    where
        F: Fn(Map, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let spec = ToolSpec { name: ToolName::new(name), description: description.to_owned(), parameters };
        let action: Action = Box::new(move |arguments, context| Box::pin(action(arguments, context)));
        Self { spec, only_looks: false, action }
    }

    /// The same tool, which only looks and changes nothing.
    pub fn that_only_looks(self) -> Self {
        Self { only_looks: true, ..self }
    }
}

#[async_trait]
impl Tool for FnTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn only_looks(&self) -> bool {
        self.only_looks
    }

    async fn call(&self, arguments: Map, context: ToolContext) -> Result<ToolOutput, ToolError> {
        (self.action)(arguments, context).await
    }
}
