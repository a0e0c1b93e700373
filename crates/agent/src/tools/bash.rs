//! `bash`: a shell command in the workspace.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use rustix::process::{Pid, Signal, kill_process_group};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::typed::tool as typed_tool;

/// How long a command may take when nobody says.
const DEFAULT_SECONDS: u64 = 120;
/// The longest a command may take.
const MAX_SECONDS: u64 = 3600;
/// How long the rest of the output is waited for when the command has ended.
const DRAIN: Duration = Duration::from_millis(500);
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
    let description = "Runs a shell command in the workspace and gives its output. It is not sandboxed. \
        Processes of its group that it leaves running are ended.";
    typed_tool("bash", description, |arguments: Bash, context: ToolContext| async move {
        let folder =
            arguments.cwd.as_ref().map_or_else(|| context.workspace.clone(), |cwd| context.workspace.join(cwd));
        let seconds = arguments.timeout_seconds.unwrap_or(DEFAULT_SECONDS).min(MAX_SECONDS);
        tokio::select! {
            () = context.cancelled.cancelled() => Err(ToolError::new("cancelled")),
            ended = run(&arguments.cmd, folder, Duration::from_secs(seconds)) => ended,
        }
    })
}

async fn run(command: &str, folder: PathBuf, limit: Duration) -> Result<ToolOutput, ToolError> {
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(command).current_dir(&folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell.kill_on_drop(true).process_group(0);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_secret(&name.to_string_lossy())) {
        shell.env_remove(name);
    }
    let mut child = shell.spawn().map_err(|error| ToolError::new(format!("cannot start the shell: {error}")))?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let mut output = Capture::of(child.stdout.take());
    let mut errors = Capture::of(child.stderr.take());
    let status = tokio::time::timeout(limit, child.wait()).await;
    // What the command left running in its group holds the pipes; it ends here, and so do the pipes.
    drop(group);
    let text = join(output.text().await, &errors.text().await);
    match status {
        Err(_) => Ok(failed(&text, &format!("ended after {} seconds", limit.as_secs()))),
        Ok(Err(error)) => Err(ToolError::new(error.to_string())),
        Ok(Ok(status)) if status.success() => {
            Ok(ToolOutput::ok(if text.is_empty() { "(no output)".to_owned() } else { text }))
        }
        Ok(Ok(status)) => {
            let code = status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
            Ok(failed(&text, &format!("ended with {code}")))
        }
    }
}

fn join(mut output: String, errors: &str) -> String {
    if !output.is_empty() && !errors.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    output.push_str(errors);
    output.trim_end().to_owned()
}

fn failed(text: &str, how: &str) -> ToolOutput {
    ToolOutput::error(format!("{text}\n[{how}]").trim_start().to_owned())
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

/// What a pipe says, read as it comes and no more than the cap of it kept. Reading ends when this is dropped.
struct Capture {
    kept: Arc<Mutex<Kept>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    left_out: usize,
}

impl Capture {
    fn of(pipe: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let reader = pipe.map(|pipe| tokio::spawn(read_all(pipe, Arc::clone(&kept))));
        Self { kept, reader }
    }

    /// What was said. A process that left the group may hold the pipe open for ever: it is not waited for.
    async fn text(&mut self) -> String {
        if let Some(reader) = &mut self.reader {
            // Whether it ended or was given up, what was read is kept.
            let _given_up = tokio::time::timeout(DRAIN, reader).await;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.bytes);
        match kept.left_out {
            0 => text.into_owned(),
            left_out => format!("{text}\n[{left_out} bytes left out]"),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

async fn read_all(mut pipe: impl AsyncRead + Unpin, kept: Arc<Mutex<Kept>>) {
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.bytes.len()).min(count);
        kept.bytes.extend_from_slice(&buffer[..room]);
        kept.left_out += count - room;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{is_secret, run};

    async fn bash(command: &str) -> (String, bool) {
        bash_within(command, Duration::from_mins(1)).await
    }

    async fn bash_within(command: &str, limit: Duration) -> (String, bool) {
        let output = run(command, std::env::temp_dir(), limit).await.unwrap();
        (output.text(), output.is_error)
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_ended_and_what_it_said_is_kept() {
        let (text, is_error) = bash_within("echo begun; exec sleep 1000", Duration::from_secs(1)).await;
        assert_eq!((text.as_str(), is_error), ("begun\n[ended after 1 seconds]", true));
    }

    #[tokio::test]
    async fn a_process_that_left_the_group_does_not_hold_the_command_up() {
        let (text, _) = bash("setsid sleep 5 & echo hi").await;
        assert_eq!(text, "hi");
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
