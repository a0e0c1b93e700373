//! `bash`, `bash.output`, `bash.kill`: shell commands in the workspace, in the foreground or background.
//!
//! Commands are not sandboxed: they can do what the user can do. Only the host's own environment is withheld from them.

mod background_job;
mod command_output;
mod command_processes;
mod environment;
mod job_registry;
mod process_selector;
mod running_command;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use job_registry::JobRegistry;

use super::typed_tool::typed_tool;
use running_command::ShellCommand;

/// Default timeout of a command.
const DEFAULT_COMMAND_SECONDS: u64 = 120;
/// Maximum timeout of a foreground command.
const MAX_COMMAND_SECONDS: u64 = 3600;
/// Maximum time a call waits for a background job.
const MAX_JOB_WAIT_SECONDS: u64 = 600;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashArgs {
    /// Shell command.
    cmd: String,
    /// Working directory, relative to the workspace.
    cwd: Option<String>,
    /// Timeout in seconds: 120 by default, at most 3600; background jobs have none by default.
    timeout_seconds: Option<u64>,
    /// Run in the background and return a job id at once.
    #[serde(default)]
    background: bool,
}

pub(super) fn run(jobs: &Arc<JobRegistry>) -> FnTool {
    let description = "Runs a shell command in the workspace and returns its output. It is not sandboxed. \
        It has no input and no terminal, and processes it leaves running in its group are killed when it exits: \
        use background=true for long-running processes such as servers.";
    let jobs = Arc::clone(jobs);
    typed_tool("bash", description, move |arguments: BashArgs, context: ToolContext| {
        let jobs = Arc::clone(&jobs);
        async move {
            let folder = arguments.cwd.as_ref().map_or(context.workspace.clone(), |cwd| context.workspace.join(cwd));
            let command = ShellCommand { command: arguments.cmd, folder, secrets: context.secrets };
            if arguments.background {
                let timeout = arguments.timeout_seconds.map(Duration::from_secs);
                let id = tokio::select! {
                    () = context.cancel_token.cancelled() => return Err(ToolError::new("cancelled")),
                    id = jobs.spawn_background(&context.api.session_id, &command, timeout) => id?,
                };
                return Ok(ToolOutput::ok(format!(
                    "{id} runs in the background: bash.output job={id} returns its output, bash.kill job={id} stops it; \
                     it stops when Capstan stops"
                )));
            }
            let seconds = arguments.timeout_seconds.unwrap_or(DEFAULT_COMMAND_SECONDS).clamp(1, MAX_COMMAND_SECONDS);
            tokio::select! {
                () = context.cancel_token.cancelled() => Err(ToolError::new("cancelled")),
                output = jobs.run_foreground(command, Duration::from_secs(seconds)) => output,
            }
        }
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashOutputArgs {
    /// Job id; without it, the jobs of this conversation are listed.
    job: Option<String>,
    /// Seconds to wait for a running job to exit.
    wait_seconds: Option<u64>,
}

pub(super) fn output(jobs: &Arc<JobRegistry>) -> FnTool {
    let description =
        "Returns the output of a background job since the last call, and whether the job is still running.";
    let jobs = Arc::clone(jobs);
    typed_tool("bash.output", description, move |arguments: BashOutputArgs, context: ToolContext| {
        let jobs = Arc::clone(&jobs);
        async move {
            let Some(id) = &arguments.job else {
                return Ok(ToolOutput::ok(jobs.list(&context.api.session_id)));
            };
            let job = jobs.find(&context.api.session_id, id)?;
            let wait = Duration::from_secs(arguments.wait_seconds.unwrap_or(0).min(MAX_JOB_WAIT_SECONDS));
            tokio::select! {
                () = context.cancel_token.cancelled() => return Err(ToolError::new("cancelled")),
                () = job.wait_exit(wait) => {}
            }
            Ok(ToolOutput::ok(job.new_output()))
        }
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashKillArgs {
    /// Job id.
    job: String,
}

pub(super) fn kill(jobs: &Arc<JobRegistry>) -> FnTool {
    let description = "Stops a background job with everything it started, and returns the rest of its output.";
    let jobs = Arc::clone(jobs);
    typed_tool("bash.kill", description, move |arguments: BashKillArgs, context: ToolContext| {
        let jobs = Arc::clone(&jobs);
        async move {
            let job = jobs.find(&context.api.session_id, &arguments.job)?;
            job.kill().await;
            Ok(ToolOutput::ok(job.new_output()))
        }
    })
}

#[cfg(test)]
mod tests;
