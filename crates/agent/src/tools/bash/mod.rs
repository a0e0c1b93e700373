//! `bash`, `bash.output`, `bash.kill`: shell commands in the workspace, at once or in the background.
//!
//! They are not sandboxed: a command can do what the user can. What is kept from it is the host's own environment.

mod background_job;
mod command_output;
mod environment;
mod job_registry;
mod process_selector;
mod process_tree;
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

/// How long a command may take when nobody says.
const DEFAULT_COMMAND_SECONDS: u64 = 120;
/// The longest a command may take that is waited for.
const MAX_COMMAND_SECONDS: u64 = 3600;
/// The longest a call waits for a job in the background.
const MAX_JOB_WAIT_SECONDS: u64 = 600;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashArgs {
    /// The command.
    cmd: String,
    /// Where to run it, relative to the workspace.
    cwd: Option<String>,
    /// After how many seconds it is ended: 120 when nobody says, at most 3600; in the background never, unless it is said.
    timeout_seconds: Option<u64>,
    /// Whether to run it in the background: the answer is then the id of a job, at once.
    #[serde(default)]
    background: bool,
}

pub(super) fn run(jobs: &Arc<JobRegistry>) -> FnTool {
    let description = "Runs a shell command in the workspace and gives its output. It is not sandboxed. \
        It has no input and no terminal, and what it leaves running in its group is ended with it: \
        run what is to go on, such as a server, with background=true.";
    let jobs = Arc::clone(jobs);
    typed_tool("bash", description, move |arguments: BashArgs, context: ToolContext| {
        let jobs = Arc::clone(&jobs);
        async move {
            let folder = arguments.cwd.as_ref().map_or(context.workspace.clone(), |cwd| context.workspace.join(cwd));
            let order = ShellCommand { command: arguments.cmd, folder, secrets: context.secrets };
            if arguments.background {
                let limit = arguments.timeout_seconds.map(Duration::from_secs);
                let id = jobs.spawn_background(&context.api.session_id, &order, limit)?;
                return Ok(ToolOutput::ok(format!(
                    "{id} runs in the background: bash.output job={id} gives what it says, bash.kill job={id} ends it; \
                     it ends with Capstan at the latest"
                )));
            }
            let seconds = arguments.timeout_seconds.unwrap_or(DEFAULT_COMMAND_SECONDS).clamp(1, MAX_COMMAND_SECONDS);
            tokio::select! {
                () = context.cancel_token.cancelled() => Err(ToolError::new("cancelled")),
                ended = jobs.run_foreground(order, Duration::from_secs(seconds)) => ended,
            }
        }
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashOutputArgs {
    /// The job; without it, the jobs of this conversation are listed.
    job: Option<String>,
    /// How many seconds to wait for the job to end, if it runs.
    wait_seconds: Option<u64>,
}

pub(super) fn output(jobs: &Arc<JobRegistry>) -> FnTool {
    let description = "Gives what a command in the background has said since the last time, and whether it still runs.";
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
    /// The job.
    job: String,
}

pub(super) fn kill(jobs: &Arc<JobRegistry>) -> FnTool {
    let description = "Ends a command in the background with everything it started, and gives the rest of its output.";
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
