//! Methods of `tools.*`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_hooks::ToolDecision;
use capstan_hooks::args::{AfterToolCallArgs, BeforeToolCallArgs, PendingToolCall, ToolOutcome};
use capstan_hooks::contracts::methods::{ToolsCall, ToolsCommand, ToolsDetail, ToolsList, ToolsRefuseCommand};
use capstan_hooks::contracts::{ApiMethod, CommandCall, Tool, ToolContext};
use capstan_policy::approval;
use capstan_protocol::run_api::{CommandRefusalCall, EmptyCall, ToolDetailCall, ToolStepCall};
use capstan_protocol::{
    ApiError, ApiErrorCode, JsonObject, KnowledgeOperation, TapeAccess, ToolCall, ToolName, ToolOperation, ToolOutput,
    ToolSpec,
};
use capstan_tape::conversation::UniqueCallIds;
use capstan_tape::{CommandEnd, CommandStart, CommandStatus, EntryDraft, TapeEvent};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::SemaphorePermit;

use super::command_access::check_command_access;
use super::guard::CallerKind;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::tool_authority::ToolAuthority;
use super::tool_step::ToolStep;
use super::{build_run_api, hook_api_error, store_api_error, unauthorized_error};
use crate::payload_size::{PayloadSize, json_size, text_size, tool_calls_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::{nesting, spill};

/// Tool that runs a line as a command of the shell.
const SHELL_TOOL: &str = "bash";
/// Maximum number of calls of a step.
const MAX_STEP_CALLS: usize = 1_000;

/// Calls tools on behalf of a run.
pub(super) struct ToolCaller(pub(super) Arc<Run>);

impl MethodHandler for ToolsList {
    /// No permission is needed: the list is limited to the tools that the grant covers.
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::Nothing
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Arc<[ToolSpec]>, ApiError> {
        let (tools, catalog) = (ToolCaller(Arc::clone(run)), &run.environment.tools);
        let specs = if run.command_line().is_some() { catalog.specs() } else { catalog.model_specs() };
        let is_granted = |spec: &&ToolSpec| {
            let is_available = tools.tool(spec.name.as_str()).is_some();
            is_available && run.grant().may.tools.allows(ToolOperation::Detail, spec.name.as_str())
        };
        let all_granted = specs.iter().all(|spec| is_granted(&spec));
        Ok(if all_granted { Arc::clone(specs) } else { specs.iter().filter(is_granted).cloned().collect() })
    }
}

impl MethodHandler for ToolsDetail {
    /// No permission is needed to learn that a tool does not exist.
    fn permission(run: &Run, call: &ToolDetailCall) -> RequiredPermission {
        match run.environment.tools.get(&call.name) {
            Some(_) => tool_permission(run, ToolOperation::Detail, &call.name),
            None => RequiredPermission::Nothing,
        }
    }

    fn payload(_: &Run, call: &ToolDetailCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name))
    }

    async fn handle(run: &Arc<Run>, call: ToolDetailCall, _: CallPermit) -> Result<ToolSpec, ApiError> {
        let name = call.name;
        let tool = ToolCaller(Arc::clone(run)).tool(&name).map(|tool| tool.spec());
        tool.ok_or_else(|| ApiError::new(ApiErrorCode::NotFound, format!("there is no tool {name}")))
    }
}

impl MethodHandler for ToolsCall {
    fn is_tool_step() -> bool {
        true
    }

    fn permission(_: &Run, _: &ToolStepCall) -> RequiredPermission {
        RequiredPermission::AnyTool(ToolOperation::Call)
    }

    fn payload(_: &Run, step: &ToolStepCall) -> PayloadSize {
        PayloadSize::Content(tool_calls_size(&step.calls))
    }

    async fn handle(run: &Arc<Run>, step: ToolStepCall, _: CallPermit) -> Result<Vec<ToolOutput>, ApiError> {
        let (tools, mut calls) = (ToolCaller(Arc::clone(run)), step.calls);
        check_calls(&calls)?;
        assign_unique_ids(&mut calls);
        let _step = StepGuard::acquire(run).await?;
        run.ingest_message();
        run.append(EntryDraft::tool_call(&calls));
        if tools.has_effects(&calls) {
            // A call with effects must not be repeated after a crash, so its record is durable first. A read-only call
            // may be repeated and does not wait for the disk.
            run.journal.flush().await.map_err(|error| store_api_error(&error))?;
        }
        ToolStep::new(&tools, &calls).execute().await
    }
}

impl MethodHandler for ToolsCommand {
    fn is_tool_step() -> bool {
        true
    }

    fn permission(run: &Run, call: &CommandCall) -> RequiredPermission {
        tool_permission(run, ToolOperation::Call, &call.name)
    }

    fn payload(_: &Run, call: &CommandCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.raw) + json_size(&call.arguments))
    }

    async fn handle(run: &Arc<Run>, call: CommandCall, _: CallPermit) -> Result<ToolOutput, ApiError> {
        check_command_line(run, &call.raw)?;
        check_command_tool(run, &call)?;
        let tools = ToolCaller(Arc::clone(run));
        let Some(tool) = tools.tool(&call.name).cloned() else {
            return Err(ApiError::new(ApiErrorCode::NotFound, format!("there is no command {}", call.name)));
        };
        let name = tool.spec().name;
        check_command_access(run, tool.as_ref())?;
        run.mark_as_command();
        let step = StepGuard::acquire(run).await?;
        // Durable before the command runs: an interrupted command must not be repeated after a crash.
        let start = CommandStart { raw: call.raw.clone(), name: name.clone() };
        run.append(TapeEvent::CommandStart(start).into());
        run.journal.flush().await.map_err(|error| store_api_error(&error))?;
        let mut record = CommandGuard { tools: &tools, raw: call.raw, name, started_at: Instant::now(), output: None };
        let output = tools.call_tool(ApiMethod::ToolsCommand, tool.as_ref(), call.arguments).await;
        let output = spill::shorten_command_output(output);
        record.output = Some(output.clone());
        // Closes the step first: an anchor that the command wrote precedes the event that records the command.
        drop(step);
        Ok(output)
    }
}

impl MethodHandler for ToolsRefuseCommand {
    fn is_tool_step() -> bool {
        true
    }

    fn permission(_: &Run, _: &CommandRefusalCall) -> RequiredPermission {
        RequiredPermission::Tape(TapeAccess::Write)
    }

    fn payload(_: &Run, call: &CommandRefusalCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.raw) + text_size(&call.reason))
    }

    async fn handle(run: &Arc<Run>, call: CommandRefusalCall, _: CallPermit) -> Result<(), ApiError> {
        check_command_line(run, &call.raw)?;
        // Without the step lock, this event could be mistaken for the end of a command that is running.
        let _step = StepGuard::acquire(run).await?;
        let CommandRefusalCall { raw, reason } = call;
        let status = CommandStatus::Error;
        let end = CommandEnd { raw, name: None, status, elapsed_ms: None, output: Some(reason) };
        run.progress().command_error = end.error_message();
        run.append(TapeEvent::Command(end).into());
        Ok(())
    }
}

/// Refuses a command that no person typed: `raw` must be the line of the event that the run serves. A runner could
/// otherwise act as a person and forge the record of commands.
fn check_command_line(run: &Run, raw: &str) -> Result<(), ApiError> {
    let message = match run.command_line() {
        Some(line) if line == raw => return Ok(()),
        Some(_) => "the line is not the command of the event that this run serves",
        None => "this run serves no command: only an event that is a comma command can be run or refused as one",
    };
    Err(ApiError::new(ApiErrorCode::InvalidArgument, message))
}

/// Refuses a tool that the line does not name: its first word is the tool, or no tool has that name and the line is a
/// command of the shell.
fn check_command_tool(run: &Run, call: &CommandCall) -> Result<(), ApiError> {
    let word = call.raw.split_whitespace().next().unwrap_or_default();
    let tools = &run.environment.tools;
    let is_named = match (tools.get(word), tools.get(&call.name)) {
        (Some(named), Some(called)) => named.spec().name == called.spec().name,
        (None, Some(called)) => {
            let is_line = call.arguments.get("cmd").and_then(Value::as_str) == Some(call.raw.as_str());
            called.spec().name.as_str() == SHELL_TOOL && is_line && run.grant().shell_commands
        }
        // Reported as an unknown command.
        (_, None) => true,
    };
    if is_named {
        return Ok(());
    }
    let message = format!("the line of the command does not call the tool {}", call.name);
    Err(ApiError::new(ApiErrorCode::InvalidArgument, message))
}

/// Permission for a tool, by its canonical name. `name` may also be the model-facing alias.
fn tool_permission(run: &Run, operation: ToolOperation, name: &str) -> RequiredPermission {
    let canonical_name = run.environment.tools.get(name).map(|tool| tool.spec().name.to_string());
    RequiredPermission::Tool(operation, canonical_name.unwrap_or_else(|| name.to_owned()))
}

/// A running command. Writes one `command` event when it is dropped, also if its run is cancelled.
struct CommandGuard<'a> {
    tools: &'a ToolCaller,
    raw: String,
    name: ToolName,
    started_at: Instant,
    output: Option<ToolOutput>,
}

impl Drop for CommandGuard<'_> {
    fn drop(&mut self) {
        let status = match &self.output {
            None => CommandStatus::Cancelled,
            Some(output) if output.is_error => CommandStatus::Error,
            Some(_) => CommandStatus::Ok,
        };
        let end = CommandEnd {
            raw: std::mem::take(&mut self.raw),
            name: Some(self.name.clone()),
            status,
            elapsed_ms: Some(u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)),
            output: self.output.as_ref().map(ToolOutput::text),
        };
        self.tools.0.progress().command_error = end.error_message();
        let effectful_tool = self.tools.effectful_tool_name(self.name.as_str());
        self.tools.0.append_atomic(Vec::new(), vec![TapeEvent::Command(end).into()], effectful_tool);
    }
}

/// The open step of a run, until it is dropped. The next one waits for it.
struct StepGuard<'a> {
    run: &'a Run,
    _permit: SemaphorePermit<'a>,
}

impl<'a> StepGuard<'a> {
    async fn acquire(run: &'a Run) -> Result<Self, ApiError> {
        // The semaphore is never closed; the error is unreachable.
        let permit = run.call_limiter.step_lock.acquire().await;
        let permit = permit.map_err(|_| ApiError::new(ApiErrorCode::RuntimeError, "the step lock is closed"))?;
        run.open_step();
        Ok(Self { run, _permit: permit })
    }
}

impl Drop for StepGuard<'_> {
    /// Closes the step, also if it was interrupted: later entries of the run are not part of it.
    fn drop(&mut self) {
        self.run.close_step();
    }
}

impl ToolCaller {
    /// Tool by its canonical name or its model-facing alias. A tool that needs knowledge is available if the run may
    /// query a knowledge base.
    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let environment = &self.0.environment;
        let granted = &self.0.grant().may.knowledge_bases;
        let can_query =
            || environment.knowledge().iter().any(|(base, _)| granted.allows(KnowledgeOperation::Retrieve, &base.id));
        environment.tools.get(name).filter(|tool| !tool.needs_knowledge() || can_query())
    }

    /// Canonical name of a tool that may have effects; `None` if it is read-only or unknown.
    pub(super) fn effectful_tool_name(&self, name: &str) -> Option<String> {
        let tool = self.0.environment.tools.get(name).filter(|tool| !tool.is_read_only())?;
        Some(tool.spec().name.to_string())
    }

    pub(super) fn has_effects(&self, calls: &[ToolCall]) -> bool {
        calls.iter().any(|call| self.effectful_tool_name(&call.function.name).is_some())
    }

    /// Output of one call of a model, for which tools that are for people only do not exist. Failures become error outputs
    /// that the model can read.
    pub(super) async fn answer_call(&self, call: &ToolCall) -> ToolOutput {
        let name = &call.function.name;
        let Some(tool) = self.tool(name).filter(|tool| !tool.is_command_only()).cloned() else {
            return ToolOutput::error(format!("there is no tool {name}"));
        };
        if !self.0.grant().may.tools.allows(ToolOperation::Call, tool.spec().name.as_str()) {
            let refusal = unauthorized_error(&format!("tool {name}"));
            self.0.record_refusal(ApiMethod::ToolsCall, refusal).await;
            return ToolOutput::error(format!("the tool {name} is not allowed here"));
        }
        match parse_arguments(call) {
            Ok(arguments) => self.call_tool(ApiMethod::ToolsCall, tool.as_ref(), arguments).await,
            Err(reason) => ToolOutput::error(reason),
        }
    }

    /// Calls a tool, with the interception hooks before and after. Approval rules see the arguments as changed by
    /// the hooks.
    async fn call_tool(&self, method: ApiMethod, tool: &dyn Tool, arguments: JsonObject) -> ToolOutput {
        let mut call = PendingToolCall { name: tool.spec().name, arguments: Arc::new(arguments) };
        let (hooks, session_id, state) =
            (&self.0.environment.hooks, self.0.context.conversation.session_id.clone(), self.0.state.clone());
        let before = BeforeToolCallArgs { call: call.clone(), session_id, state };
        let output = match hooks.interceptors().before_tool_call(before).await {
            Ok(ToolDecision::Call(arguments)) => {
                call.arguments = Arc::clone(&arguments);
                if let Some(reason) =
                    approval::refusal_reason(&self.0.grant().approvals, call.name.as_str(), &arguments)
                {
                    self.0.record_refusal(method, ApiError::new(ApiErrorCode::Unauthorized, reason.clone())).await;
                    return self.run_after_hooks(call, ToolOutput::error(reason)).await;
                }
                let number = self.0.progress().open_calls.begin_tool(call.clone());
                let output = self.execute(tool, JsonObject::clone(&arguments)).await;
                self.0.progress().open_calls.end(number);
                output
            }
            Ok(ToolDecision::Return(output)) => output,
            Err(failure) => ToolOutput::error(hook_api_error(&failure).message),
        };
        self.run_after_hooks(call, output).await
    }

    /// Output of a call after the hooks have processed it.
    async fn run_after_hooks(&self, call: PendingToolCall, output: ToolOutput) -> ToolOutput {
        let (hooks, session_id, state) =
            (&self.0.environment.hooks, self.0.context.conversation.session_id.clone(), self.0.state.clone());
        let outcome = ToolOutcome(Arc::new(output));
        let output =
            match hooks.interceptors().after_tool_call(AfterToolCallArgs { call, outcome, session_id, state }).await {
                Ok(output) => Arc::unwrap_or_clone(output),
                Err(failure) => ToolOutput::error(hook_api_error(&failure).message),
            };
        // A hook may have added content that was not masked or checked yet.
        nesting::replace_output_if_too_nested(self.0.environment.options.secret_masker.mask_output(output))
    }

    /// Caller of the run API during a call of the tool.
    fn caller_kind(&self, tool: &dyn Tool) -> CallerKind {
        let plugin = self.0.environment.tools.plugin(tool.spec().name.as_str());
        let authority = plugin.map_or_else(ToolAuthority::none, |plugin| ToolAuthority::new(&self.0, tool, plugin));
        CallerKind::Tool(Box::new(authority))
    }

    /// Executes a tool. A panic or a timeout becomes an error output.
    async fn execute(&self, tool: &dyn Tool, arguments: JsonObject) -> ToolOutput {
        let options = &self.0.environment.options;
        let cancel_token = self.0.cancel_token.child_token();
        // Cancels the tasks that the tool has spawned, whichever way the call ends.
        let _cancel_on_end = cancel_token.clone().drop_guard();
        let context = ToolContext {
            workspace: options.workspace.path.clone(),
            api: build_run_api(&self.0, self.caller_kind(tool)),
            cancel_token,
            secrets: options.secret_masker.clone(),
        };
        let call = AssertUnwindSafe(tool.call(arguments, context)).catch_unwind();
        let answer = if tool.has_own_deadline() {
            call.await
        } else {
            match tokio::time::timeout(options.limits.tool_timeout, call).await {
                Ok(answer) => answer,
                Err(_) => return ToolOutput::error(tool_timeout_message(options.limits.tool_timeout)),
            }
        };
        let output = match answer {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => ToolOutput::error(error.to_string()),
            Err(_) => ToolOutput::error("the tool crashed"),
        };
        options.secret_masker.mask_output(output)
    }
}

/// Rejects a step with too many calls, each of which is held in memory until all are complete, or with arguments nested
/// too deeply.
fn check_calls(calls: &[ToolCall]) -> Result<(), ApiError> {
    if calls.len() > MAX_STEP_CALLS {
        let message = format!("a step has at most {MAX_STEP_CALLS} calls; this one has {}", calls.len());
        return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
    }
    calls.iter().try_for_each(nesting::check_nesting)
}

/// Assigns unique ids to the calls of a step. Results are recorded in the order of completion and refer to their call
/// by id, but some models give two calls the same id, or none.
fn assign_unique_ids(calls: &mut [ToolCall]) {
    let mut ids = UniqueCallIds::default();
    for call in calls {
        call.id = ids.assign(&call.id);
    }
}

fn tool_timeout_message(limit: Duration) -> String {
    format!("the tool did not answer within {} seconds and was ended; what it did is not known", limit.as_secs())
}

/// Parses the arguments of a call. The error is a message that the model can read.
pub(super) fn parse_arguments(call: &ToolCall) -> Result<JsonObject, String> {
    let text = if call.function.arguments.trim().is_empty() { "{}" } else { call.function.arguments.as_str() };
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments must be a JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
    }
}
