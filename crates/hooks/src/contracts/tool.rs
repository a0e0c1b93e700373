//! Contract of tools, which a model or a user can call.

use std::future::Future;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use capstan_protocol::{JsonObject, PermissionSet, ToolName, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::RunApi;
use crate::SecretMasker;

/// Function that can be called by name with JSON arguments.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Name, description and parameters, for models and for `help`.
    fn spec(&self) -> ToolSpec;

    /// Returns true if the tool changes nothing. A command for such a tool may run concurrently with a turn.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Effect of a call, which determines if other calls of the same step may run at the same time. Called before any
    /// call of the step is made.
    fn effect(&self, arguments: &JsonObject, workspace: &Path) -> ToolEffect {
        let _ = (arguments, workspace);
        if self.is_read_only() { ToolEffect::Reads } else { ToolEffect::Unrestricted }
    }

    /// Returns true if the tool limits the duration of a call itself. The limit of the host for a call does not apply
    /// then; the deadline of the run does.
    fn has_own_deadline(&self) -> bool {
        false
    }

    /// Returns true if the tool queries knowledge bases. Offered only to runs that may query one.
    fn needs_knowledge(&self) -> bool {
        false
    }

    /// Returns true if the tool runs programs or changes files on the machine of the host. Events of remote origin get
    /// such a tool only from a binding that grants it explicitly.
    fn needs_trusted_origin(&self) -> bool {
        false
    }

    /// Returns true if the tool is for people only: available as a comma command. For models it does not exist: it is not
    /// offered, and a call of it is refused like one of an unknown tool.
    fn is_command_only(&self) -> bool {
        false
    }

    /// Permissions for the run API that the tool needs beyond the storage of its own plugin. Granted to tools of the host
    /// itself only, and never more than the grant of the run.
    fn permissions(&self) -> PermissionSet {
        PermissionSet::none()
    }

    /// Calls the tool. An error is returned to the model, which may try again.
    async fn call(&self, arguments: JsonObject, context: ToolContext) -> Result<ToolOutput, ToolError>;
}

/// Effect of a call on shared state. Calls of a step without conflict run at the same time; conflicting ones run one
/// after another, in the order in which the model requested them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEffect {
    /// Neither reads nor changes shared state.
    None,
    /// Reads shared state and changes none.
    Reads,
    /// Changes this one resource, such as a file.
    Writes(String),
    /// May change anything.
    Unrestricted,
}

impl ToolEffect {
    /// Returns true if two calls must keep their order.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::None) | (Self::Reads, Self::Reads) => false,
            (Self::Writes(resource), Self::Writes(other)) => resource == other,
            (Self::Reads | Self::Writes(_) | Self::Unrestricted, _) => true,
        }
    }
}

/// Context of a tool call.
#[derive(Clone)]
pub struct ToolContext {
    /// Workspace directory.
    pub workspace: PathBuf,
    /// Run API, under the authority of the tool: the storage of its own plugin, and its declared
    /// [permissions](Tool::permissions) if it is a tool of the host. The state and the storage of the calling runner are
    /// not part of it.
    pub api: RunApi,
    /// Fires when the run is cancelled; a tool that waits must watch it.
    pub cancel_token: CancellationToken,
    /// Secrets that the host masks in the output. Only complete secrets are found: a tool that truncates a text does so
    /// at a [safe cut](SecretMasker::safe_cut).
    pub secrets: SecretMasker,
}

/// Failure of a tool call, with a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

impl ToolError {
    /// Creates an error with a message for the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Function of a tool.
type ToolHandler =
    Box<dyn Fn(JsonObject, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync>;

/// Tool made from a function.
#[expect(clippy::struct_excessive_bools, reason = "independent declarations, one for each method of the trait")]
pub struct FnTool {
    spec: ToolSpec,
    is_read_only: bool,
    effect: Option<fn(&JsonObject, &Path) -> ToolEffect>,
    has_own_deadline: bool,
    needs_knowledge: bool,
    needs_trusted_origin: bool,
    is_command_only: bool,
    permissions: PermissionSet,
    handler: ToolHandler,
}

impl FnTool {
    /// Creates a tool; `parameters` is the JSON Schema of its arguments.
    pub fn new<F, Fut>(name: &str, description: &str, parameters: Value, handler: F) -> Self
    where
        F: Fn(JsonObject, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let spec =
            ToolSpec { name: ToolName::new(name), description: description.to_owned(), parameters: parameters.into() };
        let handler: ToolHandler = Box::new(move |arguments, context| Box::pin(handler(arguments, context)));
        Self {
            spec,
            is_read_only: false,
            effect: None,
            has_own_deadline: false,
            needs_knowledge: false,
            needs_trusted_origin: false,
            is_command_only: false,
            permissions: PermissionSet::none(),
            handler,
        }
    }

    /// Declares that the tool changes nothing.
    pub fn with_read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Determines the effect of each call with a function.
    pub fn with_effect(self, effect: fn(&JsonObject, &Path) -> ToolEffect) -> Self {
        Self { effect: Some(effect), ..self }
    }

    /// Declares that the tool limits the duration of a call itself.
    pub fn with_own_deadline(self) -> Self {
        Self { has_own_deadline: true, ..self }
    }

    /// Declares that the tool queries knowledge bases.
    pub fn with_knowledge(self) -> Self {
        Self { needs_knowledge: true, ..self }
    }

    /// Declares that the tool runs programs or changes files on the machine of the host.
    pub fn with_trusted_origin(self) -> Self {
        Self { needs_trusted_origin: true, ..self }
    }

    /// Declares that the tool is for people only.
    pub fn with_command_only(self) -> Self {
        Self { is_command_only: true, ..self }
    }

    /// Declares the permissions that the tool needs.
    pub fn with_permissions(self, permissions: PermissionSet) -> Self {
        Self { permissions, ..self }
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
        let default = if self.is_read_only { ToolEffect::Reads } else { ToolEffect::Unrestricted };
        self.effect.map_or(default, |effect| effect(arguments, workspace))
    }

    fn has_own_deadline(&self) -> bool {
        self.has_own_deadline
    }

    fn needs_knowledge(&self) -> bool {
        self.needs_knowledge
    }

    fn needs_trusted_origin(&self) -> bool {
        self.needs_trusted_origin
    }

    fn is_command_only(&self) -> bool {
        self.is_command_only
    }

    fn permissions(&self) -> PermissionSet {
        self.permissions.clone()
    }

    async fn call(&self, arguments: JsonObject, context: ToolContext) -> Result<ToolOutput, ToolError> {
        (self.handler)(arguments, context).await
    }
}
