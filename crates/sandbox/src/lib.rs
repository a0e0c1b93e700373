//! Process trees that end with their handle, with the host, and on request, whatever they started.
//!
//! - [`TreeCommand`] describes a command: program, environment by allow-list, standard streams, [`ResourceLimits`],
//!   [`ClosedFolders`].
//! - [`ProcessTree`] is the running command with all its descendants. The tree ends when it is killed, when the handle is
//!   dropped, and when the host dies, also by SIGKILL; a descendant that daemonised ends with it.
//! - [`SandboxSupport`] tells what the machine can enforce.
//! - [`run_helper`] turns the executable into the helper that supervises a tree. It is the first call of `main`.
//!
//! The crate knows nothing of plugins, tools and Capstan's configuration.
//!
//! # Processes
//!
//! ```text
//! host ── guard ── init ── main process of the command ── ...
//! ```
//!
//! The **guard** is the host's executable, started again as the helper. It watches the socket to the host and kills the
//! init process when the host is gone or asks for it. The **init process** is its fork: process 1 of a PID namespace, so
//! that the kernel ends every process of the tree with it. Where the machine allows no namespace, init and guard are both
//! subreapers: orphans of the tree become children of the init process, and children of the guard when the init process
//! ends. The guard then kills all its descendants, and the init process does so if the guard was killed. The init process
//! starts the main process, reaps orphans, and reports the exit of the main process to the host.
//!
//! # Limits
//!
//! - Without a PID namespace, a tree survives if guard and init process are killed at the same moment, and a process of
//!   another user (`sudo`) survives its tree. Commands with closed directories gain no privileges, and cannot signal the
//!   helper where landlock confines signals (version 6 or later).
//! - A process that another service starts on request (`systemd-run`, `docker`, `at`) is not part of the tree.
//! - Without a PID namespace, root can write files of `/proc/sys` that control the machine, and so reach closed directories.
//! - Where landlock alone closes a directory, the existence, size and times of a file in it can be asked for, and a socket in
//!   it can be connected to.
//! - A closed directory that is mounted at a second place can be reached there.

mod channel;
mod closed_folders;
mod error;
mod helper;
mod helper_program;
mod launch;
mod limits;
mod process_tree;
mod support;
mod sys;
#[cfg(feature = "test-support")]
mod test_support;
mod tree_command;

pub use closed_folders::{ClosedFolders, FolderAccess, FolderClosure};
pub use error::SandboxError;
pub use helper::run_helper;
pub use helper_program::HelperProgram;
pub use launch::{TreeExit, TreeIsolation};
pub use limits::ResourceLimits;
pub use process_tree::ProcessTree;
pub use support::{FeatureSupport, ProcessLimit, SandboxSupport};
pub use tree_command::{IsolationPolicy, TreeCommand, TreeStdio};
