//! Checks of the installation, and repairs (`capstan doctor`).

mod config_check;
mod home_check;
mod log_check;
mod repair;
mod report;
mod store_check;

use std::path::Path;
use std::sync::Arc;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::HookRuntime;
use capstan_host::ProcessLiveness;
use capstan_store::JsonlTapeStore;
use capstan_tape::TapeStore;
use clap::Args;

use self::repair::{RepairOutcome, TapeStoreOrigin};
use self::report::{CheckResult, DoctorReport};
use self::store_check::StoreCheck;
use super::{WorkspaceFlag, external_tape_store, runners, store};
use crate::config::{self, ConfigSources};
use crate::{Capstan, CommandError, builder, home};

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Repair what can be repaired safely, even while other processes run, then check
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    workspace: WorkspaceFlag,
}

/// Runs all checks. A configuration that does not load is reported as one finding; only if its sources cannot be read are
/// the other checks skipped.
pub(crate) async fn doctor(capstan: &Arc<Capstan>, arguments: &DoctorArgs) -> Result<(), CommandError> {
    let workspace = builder::resolve_workspace(arguments.workspace.path.as_deref())?;
    let sources = match ConfigSources::from_process(&workspace) {
        Ok(sources) => sources,
        Err(error) => {
            let mut report = DoctorReport::new(None);
            report.add(config_check::failed_config_check(error));
            return report.print(arguments.json);
        }
    };
    let home = sources.home.clone();
    // Before the configuration is loaded, which refuses a home that others may write.
    let tightened = (arguments.repair && home.is_dir()).then(|| home::make_private(&home));
    let mut trust_result = None;
    let (config_result, hooks) = match capstan.load_config(sources) {
        Err(error) => (config_check::failed_config_check(error), None),
        Ok(config) => {
            let hooks = capstan.build_hooks(&config, &CliChannel::new(CliPrinter::silent()));
            trust_result = Some(config_check::check_trust(&config, &workspace));
            (config_check::check_config(&config, &hooks), Some(hooks))
        }
    };
    let mut report = match config::check_home(&home) {
        Ok(()) => {
            let has_changes =
                tightened.as_ref().is_some_and(|paths| paths.as_ref().is_ok_and(|paths| !paths.is_empty()));
            let repair = arguments.repair.then_some(has_changes);
            run_checks(&home, &workspace, config_result, hooks.as_ref(), repair).await
        }
        // Nothing in a home that another user controls is used.
        Err(error) => {
            let mut report = DoctorReport::new(arguments.repair.then(Vec::new));
            report.add(CheckResult::failed("home", &CommandError::from(error)));
            report
        }
    };
    match tightened {
        Some(Ok(paths)) => report.add_repairs(paths.iter().map(|path| format!("made {} private", path.display()))),
        Some(Err(error)) => {
            let hint = format!("run `chmod -R go-rwx {}` as the owner of its files", home.display());
            report.add(CheckResult::problem("repair", format!("could not make the home private: {error}"), &hint));
        }
        None => {}
    }
    if let Some(result) = trust_result {
        report.add(result);
    }
    report.print(arguments.json)
}

/// Runs the repairs, if `repair` is given, and then the checks. `repair` is true if the home was changed before.
async fn run_checks(
    home: &Path,
    workspace: &Path,
    config_result: CheckResult,
    hooks: Option<&HookRuntime>,
    repair: Option<bool>,
) -> DoctorReport {
    if !home.is_dir() {
        let mut report = DoctorReport::new(repair.map(|_| Vec::new()));
        report.add(home_check::check_home(home));
        report.add(config_result);
        report.add(home_check::check_disk(home));
        return report;
    }
    let (external_tapes, unavailable) = match find_external_tapes(home, hooks) {
        Ok(external_tapes) => (external_tapes, None),
        Err(failure) => (None, Some(CheckResult::failed("tape-store", &failure))),
    };
    let process_liveness = ProcessLiveness::open(home::process_locks_dir(home));
    let database = home::database_path(home);
    let runners = hooks.map(runners::provided_runners);
    let store_check = StoreCheck { database: &database, external_tapes, owners: &process_liveness, runners };
    let origin = if hooks.is_some() { TapeStoreOrigin::Configured } else { TapeStoreOrigin::Inferred };
    let unfinished = || store::find_unfinished_backups(&[home, workspace]);
    let outcome = match repair {
        Some(has_changes) => Some(RepairOutcome::run(&store_check, origin, &unfinished(), has_changes).await),
        None => None,
    };
    let (repaired, unrepaired) = outcome.map(|outcome| (outcome.done, outcome.unrepaired)).unzip();
    let mut report = DoctorReport::new(repaired);
    if let Some(unrepaired) = unrepaired.filter(|unrepaired| !unrepaired.is_empty()) {
        let hint = "fix the failed checks below as their hints say, then run `capstan doctor --repair` again";
        report.add(CheckResult::problem("repair", "some repairs failed", hint).with_details(unrepaired));
    }
    report.add(home_check::check_home(home));
    report.add(config_result);
    if let Some(hooks) = hooks {
        report.add(config_check::check_plugins(hooks));
    }
    report.add(home_check::check_disk(home));
    if let Some(check) = home_check::check_backups(&unfinished()) {
        report.add(check);
    }
    report.add(check_processes(home, &process_liveness));
    if let Some(check) = unavailable {
        report.add(check);
    }
    store_check.examine(&mut report).await;
    if let Some(external_tapes) = store_check.external_tapes
        && let Err(error) = external_tapes.close().await
    {
        report.add(CheckResult::failed("tape-store", &error.into()));
    }
    report
}

/// The external tape store. Without a valid configuration, it is inferred from the files of the home.
fn find_external_tapes(home: &Path, hooks: Option<&HookRuntime>) -> Result<Option<Arc<dyn TapeStore>>, CommandError> {
    if let Some(hooks) = hooks {
        return external_tape_store(hooks);
    }
    let folder = home::tapes_dir(home);
    if folder.is_dir() { Ok(Some(Arc::new(JsonlTapeStore::open(folder)?))) } else { Ok(None) }
}

/// Counts lock files of dead processes. They are harmless: the next process removes them.
fn check_processes(home: &Path, process_liveness: &ProcessLiveness) -> CheckResult {
    match process_liveness.stale_lock_files() {
        Ok(files) => CheckResult::ok("processes", format!("stale lock files: {}", files.len())),
        Err(error) => {
            let hint = format!("check the permissions of {}", home::process_locks_dir(home).display());
            CheckResult::problem("processes", format!("cannot check which processes are alive: {error}"), &hint)
        }
    }
}

/// The result about plugins as JSON.
#[cfg(test)]
pub(crate) fn plugin_report(hooks: &HookRuntime) -> String {
    serde_json::to_string(&config_check::check_plugins(hooks)).unwrap_or_default()
}
