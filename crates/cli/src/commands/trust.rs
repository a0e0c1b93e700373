//! `capstan trust` and `capstan untrust`, and the notice and question about an untrusted workspace.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_agent::WorkspaceTrust;
use capstan_protocol::{ErrorCode, escape_line};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use super::{CommandContext, WorkspaceFlag, print, print_json, print_lines, replace_control_chars};
use crate::config::{
    Config, ConfigSources, TRUST_FILE, TrustDecision, TrustRecord, check_home, instruction_files, write_private_file,
};
use crate::{CommandError, attended_terminal, builder, home};

/// Time to answer the question about a workspace. A terminal may have no person in front of it.
const QUESTION_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Args)]
pub(crate) struct TrustArgs {
    /// Workspace to trust [default: that of --workspace, or the current directory]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    workspace: WorkspaceFlag,
    /// List the trusted workspaces
    #[arg(long, conflicts_with_all = ["dir", "remove"])]
    list: bool,
    /// Remove the trust of the workspace
    #[arg(long)]
    remove: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct UntrustArgs {
    /// Workspace to stop trusting [default: that of --workspace, or the current directory]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    workspace: WorkspaceFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Changes or lists the trusted workspaces. Reads no configuration: that of the workspace may be what is not trusted.
pub(crate) fn trust(arguments: TrustArgs) -> Result<(), CommandError> {
    if arguments.list {
        let home = checked_home(Path::new("."))?;
        return list_trusted(&TrustRecord::load(&home)?, arguments.json);
    }
    let dir = choose_dir(arguments.dir, arguments.workspace)?;
    if arguments.remove {
        return remove_trust(dir.as_deref(), arguments.json);
    }
    let workspace = builder::resolve_workspace(dir.as_deref())?;
    let home = checked_home(&workspace)?;
    update_record(&home, |record| record.trust(workspace.clone()))?;
    print_decision(&workspace, true, arguments.json)
}

/// Removes the trust of a workspace.
pub(crate) fn untrust(arguments: UntrustArgs) -> Result<(), CommandError> {
    let dir = choose_dir(arguments.dir, arguments.workspace)?;
    remove_trust(dir.as_deref(), arguments.json)
}

/// Home of this process, unless another user controls it.
fn checked_home(workspace: &Path) -> Result<PathBuf, CommandError> {
    let home = ConfigSources::from_process(workspace)?.home;
    check_home(&home)?;
    Ok(home)
}

/// Directory that a command names, as its argument or with `--workspace`. Both together are refused: clap does not detect the
/// conflict if `--workspace` precedes the command.
fn choose_dir(dir: Option<PathBuf>, workspace: WorkspaceFlag) -> Result<Option<PathBuf>, CommandError> {
    if dir.is_some() && workspace.path.is_some() {
        let message = "give the workspace as DIR or with --workspace, not both";
        return Err(CommandError::new(ErrorCode::Usage, message));
    }
    Ok(dir.or(workspace.path))
}

/// Removes the trust of a workspace, which need not exist any more. The default is the current directory.
fn remove_trust(dir: Option<&Path>, json: bool) -> Result<(), CommandError> {
    let dir = dir.unwrap_or(Path::new("."));
    let workspace = dir.canonicalize().or_else(|_| std::path::absolute(dir));
    let workspace = workspace.map_err(|error| CommandError::workspace_error(dir, &error.to_string()))?;
    let home = checked_home(&workspace)?;
    update_record(&home, |record| record.forget(&workspace))?;
    print_decision(&workspace, false, json)
}

/// Changes the record of a home, which is created if it is missing. Processes that change it take turns.
fn update_record<T>(home: &Path, change: impl FnOnce(&mut TrustRecord) -> T) -> Result<T, CommandError> {
    let path = home.join(TRUST_FILE);
    let failed = |error: io::Error| CommandError::home_error(&path, &error);
    home::create_home(home).map_err(|error| CommandError::home_error(home, &error))?;
    let lock = File::open(home).map_err(failed)?;
    // Some file systems have no locks.
    let _unlocked = flock(&lock, FlockOperation::LockExclusive);
    let mut record = TrustRecord::load(home)?;
    let result = change(&mut record);
    let text = serde_json::to_string_pretty(&record).map_err(|error| {
        let message = format!("the path of the workspace cannot be stored: {error}");
        CommandError::new(ErrorCode::WorkspaceMissing, message)
    })?;
    write_private_file(&path, &format!("{text}\n")).map_err(failed)?;
    Ok(result)
}

fn list_trusted(record: &TrustRecord, json: bool) -> Result<(), CommandError> {
    if json {
        return print_json(&json!({ "trusted": record.trusted }));
    }
    print_lines(record.trusted.iter().map(|path| replace_control_chars(&path.display().to_string())))
}

fn print_decision(workspace: &Path, is_trusted: bool, json: bool) -> Result<(), CommandError> {
    if json {
        return print_json(&json!({ "workspace": workspace, "trusted": is_trusted }));
    }
    let state = if is_trusted { "trusted" } else { "not trusted" };
    print(&replace_control_chars(&format!("{state}: {}", workspace.display())))
}

/// Permission to ask the user about an untrusted workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrustQuestion {
    /// Ask at a terminal.
    Ask,
    /// Never wait for an answer.
    Skip,
}

/// Reports that the instructions and skills of an untrusted workspace are not used. At a terminal the user is asked, once.
pub(super) fn settle_trust(context: &mut CommandContext<'_>, question: TrustQuestion) -> Result<(), CommandError> {
    let Some(notice) = untrusted_notice(&context.config, &context.workspace) else { return Ok(()) };
    let can_ask = question == TrustQuestion::Ask && attended_terminal::is_attended();
    if !can_ask || context.config.trust == TrustDecision::Declined {
        stderr_line!("note: {notice}");
        return Ok(());
    }
    let files = instruction_files(&context.workspace).join(" and ");
    stderr_line!("The workspace {} has {files}.", escape_line(&context.workspace.display().to_string()));
    stderr_line!(
        "In a trusted workspace they steer the agent, and capstan.toml may set every key. The agent acts as you."
    );
    stderr_prompt!("Trust it? [y/N] ");
    let answer = attended_terminal::read_answer(QUESTION_TIMEOUT);
    let workspace = context.workspace.clone();
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        update_record(&context.config.home, |record| record.trust(workspace))?;
        context.config.trust = TrustDecision::ByRecord;
        context.config.tools.skills.rules.trust = WorkspaceTrust::Trusted;
        return Ok(());
    }
    if answer.is_empty() {
        // The line of the question has no end yet. The workspace stays untrusted, and the question may be asked again.
        stderr_line!("");
    } else {
        update_record(&context.config.home, |record| record.decline(workspace))?;
    }
    stderr_line!("note: {notice}");
    Ok(())
}

/// Notice about files that the agent does not read because the workspace is not trusted, with the command that trusts it.
pub(crate) fn untrusted_notice(config: &Config, workspace: &Path) -> Option<String> {
    let mut files = instruction_files(workspace);
    if config.tools.skills.is_user_dir(workspace) {
        // These are the user's own skills.
        files.retain(|file| *file != ".agents");
    }
    if config.trust.is_trusted() || files.is_empty() {
        return None;
    }
    let (files, dir) = (files.join(" and "), workspace.display().to_string());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    let command = match escape_line(&dir) {
        shown if shown != dir => format!("capstan trust, in the directory {shown}"),
        _ if dir.chars().all(is_plain) => format!("capstan trust {dir}"),
        _ => format!("capstan trust '{}'", dir.replace('\'', "'\\''")),
    };
    Some(format!("the workspace is not trusted, so its {files} are not used; to trust it: {command}"))
}
