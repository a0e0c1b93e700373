//! `bash`: a shell command in the workspace.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use rustix::process::{Pid, Signal, kill_process_group};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::typed::tool as typed_tool;

/// How long a command may take when nobody says.
const DEFAULT_SECONDS: u64 = 120;
/// The longest a command may take.
const MAX_SECONDS: u64 = 3600;
/// How much output is kept.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bash {
    /// The command.
    cmd: String,
    /// Where to run it, relative to the workspace.
    cwd: Option<String>,
    /// After how many seconds it is ended.
    timeout_seconds: Option<u64>,
}

pub(super) fn tool() -> FnTool {
    let description = "Runs a shell command in the workspace and gives its output. What it leaves running is ended.";
    typed_tool("bash", description, |arguments: Bash, context: ToolContext| async move {
        let folder =
            arguments.cwd.as_ref().map_or_else(|| context.workspace.clone(), |cwd| context.workspace.join(cwd));
        let seconds = arguments.timeout_seconds.unwrap_or(DEFAULT_SECONDS).min(MAX_SECONDS);
        tokio::select! {
            () = context.cancelled.cancelled() => Err(ToolError::new("cancelled")),
            ended = tokio::time::timeout(Duration::from_secs(seconds), run(&arguments.cmd, folder)) => match ended {
                Ok(ended) => ended,
                Err(_) => Err(ToolError::new(format!("the command was ended after {seconds} seconds"))),
            },
        }
    })
}

async fn run(command: &str, folder: PathBuf) -> Result<ToolOutput, ToolError> {
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(command).current_dir(&folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell.kill_on_drop(true).process_group(0);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_secret(&name.to_string_lossy())) {
        shell.env_remove(name);
    }
    let mut child = shell.spawn().map_err(|error| ToolError::new(format!("cannot start the shell: {error}")))?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let output = tokio::spawn(capped(child.stdout.take()));
    let errors = tokio::spawn(capped(child.stderr.take()));
    let status = child.wait().await.map_err(|error| ToolError::new(error.to_string()))?;
    // What the command left running still holds the pipes; it ends here, and so do the pipes.
    drop(group);
    let mut text = output.await.unwrap_or_default();
    let error_text = errors.await.unwrap_or_default();
    if !error_text.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&error_text);
    }
    let text = text.trim_end().to_owned();
    if status.success() {
        return Ok(ToolOutput::ok(if text.is_empty() { "(no output)".to_owned() } else { text }));
    }
    let code = status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
    Ok(ToolOutput::error(format!("{text}\n[ended with {code}]").trim_start().to_owned()))
}

/// The settings and keys of the host are not the business of what it runs.
fn is_secret(name: &str) -> bool {
    name.starts_with("CAPSTAN_") || name.ends_with("_API_KEY")
}

/// The processes a command started: all of them end with it, whatever way it ends.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // An error means that the group is gone already.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end, and keeps no more than the cap.
async fn capped(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut kept = Vec::new();
    let mut left_out = 0usize;
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(&buffer[..room]);
        left_out += count - room;
    }
    let text = String::from_utf8_lossy(&kept);
    if left_out > 0 { format!("{text}\n[{left_out} bytes left out]") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::{is_secret, run};

    async fn bash(command: &str) -> (String, bool) {
        let output = run(command, std::env::temp_dir()).await.unwrap();
        (output.text(), output.is_error)
    }

    #[tokio::test]
    async fn output_and_errors_are_given_and_a_bad_end_is_an_error() {
        assert_eq!(bash("echo one; echo two >&2").await, ("one\ntwo".to_owned(), false));
        assert_eq!(bash("true").await, ("(no output)".to_owned(), false));
        assert_eq!(bash("echo half; exit 3").await, ("half\n[ended with exit code 3]".to_owned(), true));
    }

    #[tokio::test]
    async fn what_a_command_leaves_running_is_ended_and_does_not_hold_it_up() {
        let (text, _) = bash("sleep 1000 & echo $!").await;
        let left = std::path::Path::new("/proc").join(&text).join("cmdline");
        // The process was killed; at most its unreaped entry, without a command line, is left.
        assert!(std::fs::read(left).unwrap_or_default().is_empty());
    }

    #[tokio::test]
    async fn output_is_capped() {
        let (text, _) = bash("head -c 200000 /dev/zero | tr '\\0' x").await;
        assert!(text.len() < 70_000);
        assert!(text.ends_with("bytes left out]"));
    }

    #[test]
    fn x06_keys_and_settings_of_the_host_do_not_reach_a_command() {
        for name in ["CAPSTAN_API_KEY", "CAPSTAN_MODEL", "OPENAI_API_KEY"] {
            assert!(is_secret(name));
        }
        assert!(!is_secret("PATH"));
    }
}
