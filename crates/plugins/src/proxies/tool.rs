//! Tool of a plugin process.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{Tool, ToolContext, ToolEffect, ToolError};
use capstan_protocol::plugin_protocol::{PluginToolCall, PluginToolEffect, PluginToolManifest, method};
use capstan_protocol::{JsonObject, ToolName, ToolOutput, ToolSpec};
use jsonschema::Validator;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::PluginProcess;
use crate::error::call_message;

/// Tool of a plugin process.
pub(crate) struct ToolProxy {
    process: PluginProcess,
    tool: PluginToolManifest,
    spec: ToolSpec,
    /// Schema of the arguments; the manifest has been checked.
    validator: Option<Validator>,
    /// Room for calls, if their number is limited.
    slots: Option<Semaphore>,
}

impl ToolProxy {
    pub(crate) fn new(process: PluginProcess, tool: &PluginToolManifest) -> Self {
        let slots = tool
            .max_concurrent_calls
            .map(|max| Semaphore::new(usize::try_from(max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)));
        Self {
            process,
            spec: ToolSpec {
                name: ToolName::new(&tool.name),
                description: tool.description.clone(),
                parameters: Arc::new(tool.parameters.clone()),
            },
            validator: jsonschema::validator_for(&tool.parameters).ok(),
            slots,
            tool: tool.clone(),
        }
    }

    fn check_arguments(&self, arguments: &JsonObject) -> Result<(), ToolError> {
        let Some(validator) = &self.validator else { return Ok(()) };
        let arguments = Value::Object(arguments.clone());
        let error = validator.iter_errors(&arguments).next();
        error.map_or(Ok(()), |error| Err(ToolError::new(format!("invalid arguments: {error}"))))
    }

    async fn call_remotely(&self, arguments: JsonObject, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let _slot = match &self.slots {
            // Never closed.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let connected = self.process.connect().await;
        let (connection, peer) = connected.map_err(|error| ToolError::new(error.to_string()))?;
        let registration = connection.register_call("tool", Some(context.api.clone()));
        let params = PluginToolCall {
            call_id: registration.call_id.clone(),
            run_id: context.api.run_id.clone(),
            tool: self.tool.name.clone(),
            arguments,
            workspace: context.workspace.display().to_string(),
            deadline_ms: None,
        };
        let output = peer.request::<ToolOutput>(method::TOOL_CALL, &params, None).await;
        output.map_err(|error| ToolError::new(call_message(&error)))
    }
}

#[async_trait]
impl Tool for ToolProxy {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn is_read_only(&self) -> bool {
        matches!(self.tool.effect, PluginToolEffect::None | PluginToolEffect::Reads)
    }

    fn effect(&self, arguments: &JsonObject, _: &Path) -> ToolEffect {
        match (self.tool.effect, &self.tool.resource) {
            (PluginToolEffect::None, _) => ToolEffect::None,
            (PluginToolEffect::Reads, _) => ToolEffect::Reads,
            (PluginToolEffect::Writes, Some(argument)) => match arguments.get(argument) {
                Some(Value::String(resource)) => ToolEffect::Writes(format!("{}:{resource}", self.tool.name)),
                Some(resource) => ToolEffect::Writes(format!("{}:{resource}", self.tool.name)),
                None => ToolEffect::Unrestricted,
            },
            (PluginToolEffect::Writes, None) | (PluginToolEffect::Unrestricted, _) => ToolEffect::Unrestricted,
        }
    }

    fn has_own_deadline(&self) -> bool {
        self.tool.has_own_deadline
    }

    fn needs_knowledge(&self) -> bool {
        self.tool.needs_knowledge
    }

    fn needs_trusted_origin(&self) -> bool {
        self.tool.needs_trusted_origin
    }

    fn is_command_only(&self) -> bool {
        self.tool.command_only
    }

    async fn call(&self, arguments: JsonObject, context: ToolContext) -> Result<ToolOutput, ToolError> {
        self.check_arguments(&arguments)?;
        tokio::select! {
            biased;
            // The request is cancelled at the plugin when it is dropped.
            () = context.cancel_token.cancelled() => Err(ToolError::new("cancelled")),
            output = self.call_remotely(arguments, &context) => output,
        }
    }
}
