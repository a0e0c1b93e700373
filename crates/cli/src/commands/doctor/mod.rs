//! `capstan doctor`: whether all is well, and what to do where it is not.

mod journal;
mod place;
mod repair;
mod report;
mod settings;

use std::path::Path;
use std::sync::Arc;

use capstan_channels::{Cli, Printer};
use capstan_hooks::{Deadlines, HookRuntime};
use capstan_host::Owners;
use capstan_store::JsonlTapes;
use capstan_tape::TapeStore;

use self::journal::Journal;
use self::repair::{Repairs, TapesAre};
use self::report::{Report, Section};
use super::{runners, store, tape_store};
use crate::command_line::Doctor;
use crate::config::{Config, Sources};
use crate::{Capstan, Failure, builder};

/// Looks at everything. A configuration that is wrong is one of its findings and keeps it from nothing else.
pub(crate) async fn doctor(capstan: &Capstan, arguments: &Doctor) -> Result<(), Failure> {
    let workspace = builder::resolve_workspace(arguments.workspace.path.as_deref())?;
    let sources = match Sources::of_process(&workspace) {
        Ok(sources) => sources,
        Err(error) => {
            let mut report = Report::new(None);
            report.add(settings::broken(error));
            return report.tell(arguments.json);
        }
    };
    let home = sources.home.clone();
    let (set, hooks) = match Config::load(sources) {
        Err(error) => (settings::broken(error), None),
        Ok(config) => {
            let hooks = capstan.hooks(&config, &Cli::new(Printer::silent()), Deadlines::default());
            (settings::config(&config, &hooks), Some(hooks))
        }
    };
    let report = examine(&home, &workspace, set, hooks.as_ref(), arguments.repair).await;
    report.tell(arguments.json)
}

async fn examine(home: &Path, workspace: &Path, config: Section, hooks: Option<&HookRuntime>, repairs: bool) -> Report {
    if !home.is_dir() {
        let mut report = Report::new(repairs.then(Vec::new));
        report.add(place::home(home));
        report.add(config);
        report.add(place::disk(home));
        return report;
    }
    let (elsewhere, unavailable) = match elsewhere(home, hooks) {
        Ok(elsewhere) => (elsewhere, None),
        Err(failure) => (None, Some(Section::failed("tape-store", &failure))),
    };
    let owners = Owners::in_folder(builder::owners(home));
    let database = builder::database_of(home);
    let runners = hooks.map(|hooks| runners::provided(hooks).into_iter().map(|runner| runner.id).collect());
    let journal = Journal { database: &database, elsewhere, owners: &owners, runners };
    let tapes_are = if hooks.is_some() { TapesAre::Configured } else { TapesAre::Guessed };
    let unfinished = || store::unfinished_backups(&[home, workspace]);
    let repairs = if repairs { Some(Repairs::make(&journal, tapes_are, &unfinished()).await) } else { None };
    let (repaired, left) = repairs.map(|repairs| (repairs.done, repairs.left)).unzip();
    let mut report = Report::new(repaired);
    if let Some(left) = left.filter(|left| !left.is_empty()) {
        let hint = "first follow the hint of the check below that found it";
        report.add(Section::problem("repair", "not everything could be repaired", hint).with(left));
    }
    report.add(place::home(home));
    report.add(config);
    if let Some(hooks) = hooks {
        report.add(settings::plugins(hooks));
    }
    report.add(place::disk(home));
    if let Some(section) = place::backups(&unfinished()) {
        report.add(section);
    }
    report.add(processes(&owners));
    if let Some(section) = unavailable {
        report.add(section);
    }
    journal.examine(&mut report).await;
    if let Some(elsewhere) = journal.elsewhere
        && let Err(error) = elsewhere.close().await
    {
        report.add(Section::failed("tape-store", &error.into()));
    }
    report
}

/// Where entries are kept beside the database. Where the configuration cannot say, the files tell.
fn elsewhere(home: &Path, hooks: Option<&HookRuntime>) -> Result<Option<Arc<dyn TapeStore>>, Failure> {
    if let Some(hooks) = hooks {
        return tape_store(hooks);
    }
    let folder = builder::tapes_of(home);
    if folder.is_dir() { Ok(Some(Arc::new(JsonlTapes::open(folder)?))) } else { Ok(None) }
}

/// The files of processes that are gone are harmless: the next process removes them.
fn processes(owners: &Owners) -> Section {
    match owners.dead_files() {
        Ok(files) => Section::ok("processes", format!("files of processes that are gone: {}", files.len())),
        Err(error) => {
            let hint = "check the permissions of the home";
            Section::problem("processes", format!("cannot tell which processes live: {error}"), hint)
        }
    }
}
