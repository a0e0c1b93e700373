//! Description and start of a command whose whole process tree is supervised.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::fs::MemfdFlags;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use crate::channel::{receive_message, send_message, socket_pair};
use crate::closed_folders::ClosedFolders;
use crate::error::SandboxError;
use crate::helper::{HELPER_ARGUMENT, HELPER_NAME};
use crate::helper_program::HelperProgram;
use crate::launch::{HelperReport, LaunchFailure, LaunchHeader, LaunchRequest, LaunchStep, TreeIsolation};
use crate::limits::ResourceLimits;
use crate::process_tree::{ProcessTree, TreeHandles};
use crate::sys;

/// Standard stream of a command.
#[derive(Debug, Default)]
pub enum TreeStdio {
    /// `/dev/null`.
    #[default]
    Null,
    /// A pipe to the host.
    Piped,
    /// An open file.
    File(OwnedFd),
}

/// Kind of isolation that a command may be started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsolationPolicy {
    /// A PID namespace where the machine allows it, subreapers otherwise.
    #[default]
    PreferNamespace,
    /// A PID namespace; the start is refused where the machine does not allow it.
    RequireNamespace,
    /// Subreapers, also where a PID namespace is possible. The command sees the processes of the machine.
    SubreaperOnly,
}

/// Command whose whole process tree ends with its handle.
///
/// The environment is empty but for the variables that are set or inherited by name. The command has no controlling
/// terminal, and none of the host's files but its standard streams.
#[derive(Debug)]
pub struct TreeCommand {
    helper: HelperProgram,
    program: OsString,
    args: Vec<OsString>,
    folder: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    streams: StreamSettings,
    isolation: IsolationPolicy,
    limits: ResourceLimits,
    closed_folders: Option<ClosedFolders>,
}

#[derive(Debug, Default)]
struct StreamSettings {
    stdin: TreeStdio,
    stdout: TreeStdio,
    stderr: TreeStdio,
}

/// Ends of the standard streams that the command gets, and those that stay with the host.
struct OpenStreams {
    inner: [OwnedFd; 3],
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

impl TreeCommand {
    /// Creates a command. A program without a slash is searched in the `PATH` of the command's environment.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            helper: HelperProgram::current(),
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            folder: None,
            environment: Vec::new(),
            streams: StreamSettings::default(),
            isolation: IsolationPolicy::default(),
            limits: ResourceLimits::default(),
            closed_folders: None,
        }
    }

    /// Sets the executable of the helper; by default it is that of this process.
    pub fn helper(mut self, helper: HelperProgram) -> Self {
        self.helper = helper;
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the working directory; by default it is the root directory.
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets variables.
    pub fn envs(self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> Self {
        variables.into_iter().fold(self, |command, (name, value)| command.env(name, value))
    }

    /// Inherits the variables with these names from the host, as far as they are set. A name that ends in `*` stands for
    /// all variables that begin with it.
    pub fn inherit_env(self, names: &[&str]) -> Self {
        let is_listed = |variable: &OsStr| {
            let variable = variable.as_encoded_bytes();
            names.iter().any(|name| match name.strip_suffix('*') {
                Some(prefix) => variable.starts_with(prefix.as_bytes()),
                None => variable == name.as_bytes(),
            })
        };
        self.envs(std::env::vars_os().filter(|(name, _)| is_listed(name)))
    }

    /// Sets the standard input; by default it is empty.
    pub fn stdin(mut self, stream: TreeStdio) -> Self {
        self.streams.stdin = stream;
        self
    }

    /// Sets the standard output; by default it is discarded.
    pub fn stdout(mut self, stream: TreeStdio) -> Self {
        self.streams.stdout = stream;
        self
    }

    /// Sets the standard error; by default it is discarded.
    pub fn stderr(mut self, stream: TreeStdio) -> Self {
        self.streams.stderr = stream;
        self
    }

    /// Sets the kind of isolation.
    pub fn isolation(mut self, isolation: IsolationPolicy) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets limits of the processes.
    pub fn limits(mut self, limits: ResourceLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Closes directories to the command.
    pub fn closed_folders(mut self, folders: ClosedFolders) -> Self {
        self.closed_folders = Some(folders);
        self
    }

    /// Starts the command, and returns when it executes its program.
    ///
    /// Must be called within a tokio runtime with I/O. If the future is dropped, the command ends.
    pub async fn spawn(self) -> Result<ProcessTree, SandboxError> {
        let at = |action: &'static str| move |source| SandboxError::Helper { action: action.to_owned(), source };
        let streams = self.streams.open().map_err(at("open the standard streams"))?;
        let closed_folders = self.closed_folders.as_ref().map(ClosedFolders::resolve).transpose()?;
        let mut request = LaunchRequest {
            program: self.program,
            args: self.args,
            folder: self.folder.map(PathBuf::into_os_string),
            environment: self.environment,
            isolation: match self.isolation {
                IsolationPolicy::SubreaperOnly => TreeIsolation::Subreaper,
                IsolationPolicy::PreferNamespace | IsolationPolicy::RequireNamespace => TreeIsolation::PidNamespace,
            },
            limits: self.limits,
            closed_folders,
        };
        let mut launched = launch(&self.helper, &request, &streams.inner).await?;
        if let Err(failure) = &launched
            && failure.step == LaunchStep::Namespace
            && self.isolation == IsolationPolicy::PreferNamespace
        {
            tracing::debug!(action = failure.action, reason = failure.message, "no PID namespace: using subreapers");
            request.isolation = TreeIsolation::Subreaper;
            launched = launch(&self.helper, &request, &streams.inner).await?;
        }
        let handles = launched.map_err(SandboxError::from)?;
        let mut tree = ProcessTree::supervise(self.helper, handles, request.isolation);
        (tree.stdin, tree.stdout, tree.stderr) = (streams.stdin, streams.stdout, streams.stderr);
        Ok(tree)
    }
}

impl StreamSettings {
    fn open(self) -> io::Result<OpenStreams> {
        let (stdin, host_stdin) = match self.stdin {
            TreeStdio::Null => (File::open("/dev/null")?.into(), None),
            TreeStdio::File(file) => (file, None),
            TreeStdio::Piped => {
                let (reader, writer) = io::pipe()?;
                (reader.into(), Some(pipe::Sender::from_owned_fd(writer.into())?))
            }
        };
        let (stdout, host_stdout) = open_output(self.stdout)?;
        let (stderr, host_stderr) = open_output(self.stderr)?;
        let inner = [stdin, stdout, stderr];
        Ok(OpenStreams { inner, stdin: host_stdin, stdout: host_stdout, stderr: host_stderr })
    }
}

fn open_output(stream: TreeStdio) -> io::Result<(OwnedFd, Option<pipe::Receiver>)> {
    Ok(match stream {
        TreeStdio::Null => (File::options().write(true).open("/dev/null")?.into(), None),
        TreeStdio::File(file) => (file, None),
        TreeStdio::Piped => {
            let (reader, writer) = io::pipe()?;
            (writer.into(), Some(pipe::Receiver::from_owned_fd(reader.into())?))
        }
    })
}

/// Starts a helper with this request, and waits for its report. On a failure the helper has ended.
async fn launch(
    program: &HelperProgram,
    request: &LaunchRequest,
    streams: &[OwnedFd; 3],
) -> Result<Result<TreeHandles, LaunchFailure>, SandboxError> {
    let at = |action: &'static str| move |source| SandboxError::Helper { action: action.to_owned(), source };
    let (control, helper_control) = socket_pair().map_err(at("create a socket"))?;
    let file = write_request(request).map_err(at("write the request"))?;
    let [stdin, stdout, stderr] = streams;
    send_message(&control, &LaunchHeader {}, &[file.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])
        .map_err(at("send the request"))?;
    let mut helper = start_helper(program, helper_control)
        .map_err(|source| SandboxError::Helper { action: format!("run {}", program.path().display()), source })?;
    rustix::io::ioctl_fionbio(&control, true).map_err(io::Error::from).map_err(at("use the socket"))?;
    let control = sys::watch_readable(control).map_err(at("use the socket"))?;
    let mut init = None;
    loop {
        let report = control.async_io(tokio::io::Interest::READABLE, |control| receive_message(control));
        match report.await.map_err(at("read the report"))? {
            Some((HelperReport::InitStarted, files)) => init = files.into_iter().next(),
            Some((HelperReport::Launched { closure }, files)) => {
                let (Some(init), Some(main)) = (init, files.into_iter().next()) else {
                    let source = io::Error::other("incomplete report");
                    return Err(SandboxError::Helper { action: "read the report".to_owned(), source });
                };
                return Ok(Ok(TreeHandles { control, helper, init, main, closure }));
            }
            Some((HelperReport::Failed(failure), _)) => {
                drop(control);
                helper.wait().await.map_err(at("wait for the helper"))?;
                return Ok(Err(failure));
            }
            Some((HelperReport::Exited(_) | HelperReport::Unkillable { .. }, _)) => {}
            None => {
                helper.wait().await.map_err(at("wait for the helper"))?;
                return Err(SandboxError::HelperEnded { program: program.path().to_owned() });
            }
        }
    }
}

/// Writes the request to a file in memory: it may be longer than a message.
fn write_request(request: &LaunchRequest) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("capstan-launch", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(request)?)?;
    Ok(file)
}

fn start_helper(program: &HelperProgram, control: OwnedFd) -> io::Result<Child> {
    program.ensure_capable()?;
    let mut command = Command::new(program.path());
    command.arg0(HELPER_NAME).arg(HELPER_ARGUMENT).env_clear().current_dir("/");
    command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

impl From<LaunchFailure> for SandboxError {
    fn from(failure: LaunchFailure) -> Self {
        let source = failure.to_io_error();
        let action = failure.action;
        match failure.step {
            LaunchStep::Helper => Self::Helper { action, source },
            LaunchStep::Namespace => Self::Namespace { action, source },
            LaunchStep::ClosedFolders => Self::ClosureUnavailable { reason: failure.message },
            LaunchStep::Limits => Self::Limits { limit: action, source },
            LaunchStep::WorkingFolder => Self::WorkingFolder { folder: action, source },
            LaunchStep::Program => Self::Program { program: action, source },
        }
    }
}
