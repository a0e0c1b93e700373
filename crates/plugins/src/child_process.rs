//! Process of a plugin with its descendants.
//!
//! The process is the leader of a group of its own, which is killed as a whole. A descendant that leaves the group, and
//! the processes of a host that is killed, are left to the supervision of process trees.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// Variables that a plugin inherits. Nothing else of the environment of the host reaches it.
const INHERITED_VARIABLES: [&str; 5] = ["PATH", "LANG", "TZ", "TERM", "TMPDIR"];
/// Prefix of further inherited variables.
const INHERITED_PREFIX: &str = "LC_";

/// Program of a plugin, ready to be started.
pub(crate) struct ChildCommand<'a> {
    pub(crate) command: &'a [String],
    pub(crate) folder: &'a Path,
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Running process. Its group is killed when it is dropped.
pub(crate) struct ChildProcess {
    child: Child,
    group: Option<Pid>,
}

/// Standard streams of a process.
pub(crate) struct ChildStreams {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl ChildCommand<'_> {
    pub(crate) fn spawn(self) -> io::Result<(ChildProcess, ChildStreams)> {
        let missing = || io::Error::other("a standard stream is missing");
        let (program, arguments) = self.command.split_first().ok_or_else(missing)?;
        let program =
            if program.contains('/') { self.folder.join(program).into() } else { std::ffi::OsString::from(program) };
        let inherited = std::env::vars_os().filter(|(name, _)| {
            name.to_str().is_some_and(|name| INHERITED_VARIABLES.contains(&name) || name.starts_with(INHERITED_PREFIX))
        });
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(self.folder)
            .env_clear()
            .envs(inherited)
            .envs(self.variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let streams = ChildStreams {
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: child.stdout.take().ok_or_else(missing)?,
            stderr: child.stderr.take().ok_or_else(missing)?,
        };
        Ok((ChildProcess { child, group }, streams))
    }
}

impl ChildProcess {
    /// Id of the process; `None` after it has exited.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the exit of the process.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the group. A group outlives its leader as long as it has members.
    pub(crate) fn kill_group(&self) {
        if let Some(group) = self.group {
            // It fails if no process is left.
            let _is_gone = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill_group();
    }
}
