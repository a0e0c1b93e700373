//! Process of a plugin with its descendants, which end together, at the latest with the host.

use std::path::Path;
use std::time::Duration;

use capstan_sandbox::{
    ClosedFolders, FolderAccess, ProcessTree, ResourceLimits, SandboxError, TreeCommand, TreeExit, TreeStdio,
};
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// Variables that a plugin inherits. Nothing else of the environment of the host reaches it.
const INHERITED_VARIABLES: [&str; 6] = ["PATH", "LANG", "TZ", "TERM", "TMPDIR", "LC_*"];

/// Program of a plugin, ready to be started.
pub(crate) struct ChildCommand<'a> {
    pub(crate) command: &'a [String],
    pub(crate) folder: &'a Path,
    pub(crate) data_dir: &'a Path,
    /// Home of the host, which is closed but for the two folders.
    pub(crate) home: Option<&'a Path>,
    pub(crate) limits: ResourceLimits,
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Running process. It and all its descendants are killed when it is dropped.
pub(crate) struct ChildProcess {
    tree: ProcessTree,
}

/// Standard streams of a process.
pub(crate) struct ChildStreams {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

impl ChildCommand<'_> {
    pub(crate) async fn spawn(self) -> Result<(ChildProcess, ChildStreams), String> {
        let (program, arguments) = self.command.split_first().ok_or("the command is empty")?;
        let program =
            if program.contains('/') { self.folder.join(program).into() } else { std::ffi::OsString::from(program) };
        let mut command = TreeCommand::new(program)
            .args(arguments)
            .current_dir(self.folder)
            .inherit_env(&INHERITED_VARIABLES)
            .envs(self.variables)
            .limits(self.limits)
            .stdin(TreeStdio::Piped)
            .stdout(TreeStdio::Piped)
            .stderr(TreeStdio::Piped);
        if let Some(home) = self.home {
            command = command.closed_folders(closed_home(home, self.folder, self.data_dir)?);
        }
        let mut tree = command.spawn().await.map_err(|error| error.to_string())?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (tree.stdin.take(), tree.stdout.take(), tree.stderr.take())
        else {
            return Err("a standard stream is missing".to_owned());
        };
        Ok((ChildProcess { tree }, ChildStreams { stdin, stdout, stderr }))
    }
}

/// Home that is closed but for the folder of the plugin and its data.
fn closed_home(home: &Path, folder: &Path, data_dir: &Path) -> Result<ClosedFolders, String> {
    let real_path = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let home = real_path(home)?;
    let mut closed = ClosedFolders::new(&home);
    for (open, access) in [(folder, FolderAccess::ReadOnly), (data_dir, FolderAccess::ReadWrite)] {
        let open = real_path(open)?;
        // A plugin that is not installed may be anywhere.
        if open.starts_with(&home) {
            closed = closed.keep_open(open, access);
        }
    }
    Ok(closed)
}

impl ChildProcess {
    /// Id of the process; `None` after it has exited.
    pub(crate) fn id(&self) -> Option<u32> {
        self.tree.id()
    }

    /// Waits for the exit of the process. What it leaves running is killed.
    pub(crate) async fn wait(&mut self, limit: Duration) -> Option<Result<TreeExit, SandboxError>> {
        timeout(limit, self.tree.wait()).await.ok()
    }

    /// Begins to kill all its processes.
    pub(crate) fn start_kill(&self) {
        self.tree.start_kill();
    }
}
