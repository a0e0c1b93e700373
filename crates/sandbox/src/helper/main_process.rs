//! Main process, from its fork until it executes the program.

use std::convert::Infallible;
use std::io::{PipeWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::HELPER_FAILURE_CODE;
use super::init_process::StandardStreams;
use super::landlock_rules::restrict_files;
use super::privileges::drop_privileges;
use crate::closed_folders::{FolderClosure, FolderRules};
use crate::launch::{LaunchContext as _, LaunchFailure, LaunchRequest, LaunchStep};
use crate::limits::ResourceLimits;

/// Executes the program of the request in this process, or reports the failure and exits.
pub(super) fn execute(
    request: LaunchRequest,
    streams: StandardStreams,
    closure: Option<FolderClosure>,
    mut failures: PipeWriter,
) -> ! {
    let Err(failure) = try_execute(request, streams, closure);
    if let Ok(failure) = serde_json::to_vec(&failure) {
        // An error means that the init process is gone.
        let _unsent = failures.write_all(&failure);
    }
    std::process::exit(HELPER_FAILURE_CODE)
}

fn try_execute(
    request: LaunchRequest,
    streams: StandardStreams,
    closure: Option<FolderClosure>,
) -> Result<Infallible, LaunchFailure> {
    rustix::process::setsid().at(LaunchStep::Helper, "create a session")?;
    // The rest of the tree does not depend on this signal: it is only the fastest way.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at(LaunchStep::Helper, "set the parent-death signal")?;
    let folder = request.folder.unwrap_or_else(|| "/".into());
    std::env::set_current_dir(&folder).at(LaunchStep::WorkingFolder, &folder.to_string_lossy())?;
    apply_limits(&request.limits)?;
    if let (Some(rules), Some(closure)) = (&request.closed_folders, closure) {
        enforce_closure(rules, closure)?;
    }
    let mut command = Command::new(&request.program);
    command.args(request.args).env_clear().envs(request.environment);
    command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
    Err(LaunchFailure::new(LaunchStep::Program, request.program.to_string_lossy(), &command.exec()))
}

fn enforce_closure(rules: &FolderRules, closure: FolderClosure) -> Result<(), LaunchFailure> {
    let restrict = |is_hidden| restrict_files(rules, is_hidden).at(LaunchStep::Helper, "restrict files by landlock");
    drop_privileges().at(LaunchStep::Helper, "give up privileges")?;
    match closure {
        FolderClosure::MountNamespaceAndLandlock => restrict(true),
        FolderClosure::Landlock => restrict(false),
        FolderClosure::MountNamespace | FolderClosure::NotEnforced => Ok(()),
    }
}

fn apply_limits(limits: &ResourceLimits) -> Result<(), LaunchFailure> {
    set_limit(Resource::Core, Some(0), "core dumps")?;
    set_limit(Resource::Nofile, limits.open_files, "open files")?;
    set_limit(Resource::Nproc, limits.processes, "processes")?;
    set_limit(Resource::Data, limits.memory_bytes, "memory")
}

/// Sets a limit, but never above the present hard limit.
fn set_limit(resource: Resource, limit: Option<u64>, name: &str) -> Result<(), LaunchFailure> {
    let Some(limit) = limit else { return Ok(()) };
    let limit = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
    setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).at(LaunchStep::Limits, name)
}
