//! `capstan doctor`: whether all is well, and what to do where it is not.

mod home;
mod repair;
mod report;
mod settings;
mod store_check;

use std::path::Path;
use std::sync::Arc;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::{HookDeadlines, HookRuntime};
use capstan_host::ProcessLiveness;
use capstan_store::JsonlTapeStore;
use capstan_tape::TapeStore;

use self::repair::{RepairOutcome, TapeStoreOrigin};
use self::report::{CheckResult, DoctorReport};
use self::store_check::StoreCheck;
use super::{external_tape_store, runners, store};
use crate::command_line::DoctorArgs;
use crate::config::{Config, ConfigSources};
use crate::{Capstan, CommandError, builder};

/// Looks at everything. A configuration that is wrong is one of its findings and keeps it from nothing else.
pub(crate) async fn doctor(capstan: &Capstan, arguments: &DoctorArgs) -> Result<(), CommandError> {
    let workspace = builder::resolve_workspace(arguments.workspace.path.as_deref())?;
    let sources = match ConfigSources::from_process(&workspace) {
        Ok(sources) => sources,
        Err(error) => {
            let mut report = DoctorReport::new(None);
            report.add(settings::failed_config_check(error));
            return report.print(arguments.json);
        }
    };
    let home = sources.home.clone();
    let (set, hooks) = match Config::load(sources) {
        Err(error) => (settings::failed_config_check(error), None),
        Ok(config) => {
            let hooks = capstan.build_hooks(&config, &CliChannel::new(CliPrinter::silent()), HookDeadlines::default());
            (settings::check_config(&config, &hooks), Some(hooks))
        }
    };
    let report = examine(&home, &workspace, set, hooks.as_ref(), arguments.repair).await;
    report.print(arguments.json)
}

async fn examine(
    home: &Path,
    workspace: &Path,
    config: CheckResult,
    hooks: Option<&HookRuntime>,
    repairs: bool,
) -> DoctorReport {
    if !home.is_dir() {
        let mut report = DoctorReport::new(repairs.then(Vec::new));
        report.add(home::check_home(home));
        report.add(config);
        report.add(home::check_disk(home));
        return report;
    }
    let (elsewhere, unavailable) = match find_external_tapes(home, hooks) {
        Ok(elsewhere) => (elsewhere, None),
        Err(failure) => (None, Some(CheckResult::failed("tape-store", &failure))),
    };
    let owners = ProcessLiveness::open(builder::process_locks_dir(home));
    let database = builder::database_path_in(home);
    let runners = hooks.map(|hooks| runners::provided_runners(hooks).into_iter().map(|runner| runner.id).collect());
    let journal = StoreCheck { database: &database, external_tapes: elsewhere, owners: &owners, runners };
    let tapes_are = if hooks.is_some() { TapeStoreOrigin::Configured } else { TapeStoreOrigin::Inferred };
    let unfinished = || store::find_unfinished_backups(&[home, workspace]);
    let repairs = if repairs { Some(RepairOutcome::run(&journal, tapes_are, &unfinished()).await) } else { None };
    let (repaired, left) = repairs.map(|repairs| (repairs.done, repairs.unrepaired)).unzip();
    let mut report = DoctorReport::new(repaired);
    if let Some(left) = left.filter(|left| !left.is_empty()) {
        let hint = "first follow the hint of the check below that found it";
        report.add(CheckResult::problem("repair", "not everything could be repaired", hint).with_details(left));
    }
    report.add(home::check_home(home));
    report.add(config);
    if let Some(hooks) = hooks {
        report.add(settings::check_plugins(hooks));
    }
    report.add(home::check_disk(home));
    if let Some(section) = home::check_backups(&unfinished()) {
        report.add(section);
    }
    report.add(check_processes(&owners));
    if let Some(section) = unavailable {
        report.add(section);
    }
    journal.examine(&mut report).await;
    if let Some(elsewhere) = journal.external_tapes
        && let Err(error) = elsewhere.close().await
    {
        report.add(CheckResult::failed("tape-store", &error.into()));
    }
    report
}

/// Where entries are kept beside the database. Where the configuration cannot say, the files tell.
fn find_external_tapes(home: &Path, hooks: Option<&HookRuntime>) -> Result<Option<Arc<dyn TapeStore>>, CommandError> {
    if let Some(hooks) = hooks {
        return external_tape_store(hooks);
    }
    let folder = builder::tapes_dir_in(home);
    if folder.is_dir() { Ok(Some(Arc::new(JsonlTapeStore::open(folder)?))) } else { Ok(None) }
}

/// The files of processes that are gone are harmless: the next process removes them.
fn check_processes(owners: &ProcessLiveness) -> CheckResult {
    match owners.stale_lock_files() {
        Ok(files) => CheckResult::ok("processes", format!("files of processes that are gone: {}", files.len())),
        Err(error) => {
            let hint = "check the permissions of the home";
            CheckResult::problem("processes", format!("cannot tell which processes live: {error}"), hint)
        }
    }
}
