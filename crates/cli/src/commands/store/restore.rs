//! `capstan store restore`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_host::ProcessLiveness;
use capstan_protocol::ErrorCode;
use capstan_store::{DatabaseSummary, SqliteStore, UnfinishedWork, check_database_file, restore_database};
use capstan_tape::{Store, StoreError, TapeRepository};
use clap::Args;
use serde_json::{Value, json};

use super::super::{CommandContext, print_json, print_lines};
use super::replacement::{busy_error, check_external_tapes, replaced_path, replica_store, run_replacement};
use crate::{CommandError, home};

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct RestoreArgs {
    /// Backup, as written by `capstan store backup`
    #[arg(value_name = "FILE")]
    backup: PathBuf,
    /// Show the backup and what would be lost, and change nothing (the default without --yes)
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Replace the database; nothing is changed without this option
    #[arg(long)]
    yes: bool,
    /// Resume the events and messages of the backup as after a crash; this may repeat completed ones
    #[arg(long)]
    resume_events: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A checked backup, compared with the database.
struct RestorePlan {
    database: PathBuf,
    backup: PathBuf,
    restored: DatabaseSummary,
    /// `None` if there is no database, or if it cannot be read.
    current: Option<DatabaseSummary>,
    /// Events in flight and pending messages in the backup.
    unfinished: (usize, usize),
    work: UnfinishedWork,
}

pub(super) async fn restore(context: &CommandContext<'_>, arguments: &RestoreArgs) -> Result<(), CommandError> {
    let plan = RestorePlan::new(context, arguments).await?;
    let is_confirmed = arguments.yes && !arguments.dry_run;
    let replaced = if is_confirmed { Some(plan.execute(context).await?) } else { None };
    if arguments.json {
        print_json(&plan.to_json(replaced.as_deref()))?;
    } else {
        print_lines(plan.describe(replaced.as_deref(), arguments.dry_run))?;
    }
    if !is_confirmed && !arguments.dry_run {
        stderr_line!("note: nothing was changed; add --yes to restore the backup");
    }
    Ok(())
}

impl RestorePlan {
    async fn new(context: &CommandContext<'_>, arguments: &RestoreArgs) -> Result<Self, CommandError> {
        let (database, backup) = (home::database_path(&context.config.home), arguments.backup.clone());
        check_backup_path(&backup, &database)?;
        check_database_file(&backup)?;
        let restored = DatabaseSummary::read(&backup).map_err(|error| not_a_backup(&backup, error))?;
        if restored.version > SqliteStore::SCHEMA_VERSION {
            let (what, found) = (backup.display().to_string(), restored.version);
            return Err(StoreError::SchemaTooNew { what, found, known: SqliteStore::SCHEMA_VERSION }.into());
        }
        check_external_tapes(context, &backup).await?;
        let unfinished = verify_backup(context, &backup).await?;
        // A database that cannot be read any more is the commonest reason to restore one.
        let current = DatabaseSummary::read(&database).ok();
        let work = if arguments.resume_events { UnfinishedWork::Resume } else { UnfinishedWork::GiveUp };
        Ok(Self { database, backup, restored, current, unfinished, work })
    }

    /// Replaces the database by the backup, and returns the file with the replaced content.
    async fn execute(&self, context: &CommandContext<'_>) -> Result<PathBuf, CommandError> {
        let home = &context.config.home;
        home::create_home(home).map_err(|error| CommandError::home_error(home, &error))?;
        // A damaged or removed database cannot be locked, although a process may use it.
        let processes = ProcessLiveness::open(home::process_locks_dir(home));
        if let Some(process) = processes.living_processes().unwrap_or_default().first() {
            let id = processes.process_id(process).map(|id| format!(" with the id {id}")).unwrap_or_default();
            return Err(busy_error(format!("a process of the home is running{id}")));
        }
        let replaced = replaced_path(&self.database);
        let (database, backup, kept, work) = (self.database.clone(), self.backup.clone(), replaced.clone(), self.work);
        run_replacement(move || restore_database(database, backup, kept, work)).await?;
        Ok(replaced)
    }

    fn lost(&self, count: fn(&DatabaseSummary) -> u64) -> Option<u64> {
        self.current.as_ref().map(|current| count(current).saturating_sub(count(&self.restored)))
    }

    fn describe(&self, replaced: Option<&Path>, is_dry_run: bool) -> Vec<String> {
        let (backup, restored) = (self.backup.display(), &self.restored);
        let verb = if replaced.is_some() { "restored" } else { "would restore" };
        let content = format!("schema {}: {} entries, {} events", restored.version, restored.entries, restored.events);
        let mut lines = vec![format!("{verb} {backup}, {content}")];
        lines.push(match (self.lost(|summary| summary.entries), self.lost(|summary| summary.events)) {
            (Some(entries), Some(events)) => {
                format!("not in the backup, written since: {entries} entries, {events} events")
            }
            _ => "the present database is missing or cannot be read".to_owned(),
        });
        let (events, messages) = self.unfinished;
        if events + messages > 0 {
            let fate = match self.work {
                UnfinishedWork::GiveUp => "the events end as failed, and the messages are held",
                UnfinishedWork::Resume => "they are recovered as after a crash",
            };
            lines.push(format!("unfinished in the backup: {events} events, {messages} messages; {fate}"));
        }
        match replaced {
            None if is_dry_run => lines.push("nothing was changed".to_owned()),
            Some(replaced) if replaced.exists() => {
                lines.push(format!("the replaced database is {}", replaced.display()));
            }
            None | Some(_) => {}
        }
        lines
    }

    fn to_json(&self, replaced: Option<&Path>) -> Value {
        let (events, messages) = self.unfinished;
        json!({ "database": self.database, "backup": self.backup, "schema": self.restored.version,
                "entries": self.restored.entries, "events": self.restored.events,
                "lost_entries": self.lost(|summary| summary.entries), "lost_events": self.lost(|summary| summary.events),
                "unfinished_events": events, "unfinished_messages": messages,
                "resume_events": self.work == UnfinishedWork::Resume,
                "replaced": replaced.filter(|replaced| replaced.exists()), "changed": replaced.is_some() })
    }
}

/// Checks that the path is a file other than the database.
fn check_backup_path(backup: &Path, database: &Path) -> Result<(), CommandError> {
    let shown = backup.display();
    let usage = |message: String| {
        let hint = "give the path of a file that `capstan store backup` wrote";
        CommandError::new(ErrorCode::Usage, message).with_hint(hint)
    };
    match backup.metadata() {
        Err(error) => return Err(usage(format!("cannot read {shown}: {error}"))),
        Ok(file) if !file.is_file() => return Err(usage(format!("{shown} is not a regular file"))),
        Ok(file) if file.len() == 0 => return Err(usage(format!("{shown} is empty"))),
        Ok(_) => {}
    }
    if matches!((backup.canonicalize(), database.canonicalize()), (Ok(a), Ok(b)) if a == b) {
        return Err(usage(format!("{shown} is the store itself")));
    }
    Ok(())
}

/// Error for a database that lacks the tables of Capstan.
fn not_a_backup(backup: &Path, error: StoreError) -> CommandError {
    match error {
        StoreError::Io { .. } => {
            let message = format!("{} is not a database of Capstan", backup.display());
            CommandError::new(ErrorCode::StoreCorrupt, message)
        }
        other => other.into(),
    }
}

/// Verifies every tape of a backup, with the entries that the external tape store has. Returns the number of its events in
/// flight and of its pending messages.
async fn verify_backup(context: &CommandContext<'_>, backup: &Path) -> Result<(usize, usize), CommandError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_snapshot(backup)?);
    let external = replica_store(context, backup).await?;
    let tapes = match &external {
        Some(external) => TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(external)),
        None => TapeRepository::new(Arc::clone(&store)),
    };
    let problems = tapes.verify().await;
    if let Some(external) = external {
        external.close().await?;
    }
    if let Some(first) = problems?.first() {
        let message = format!("{} is damaged, and was not restored: {}", backup.display(), first.message);
        let hint = "restore another backup; with tapes stored as files, put those of the backup (FILE.tapes) in place \
                    first";
        return Err(CommandError::new(ErrorCode::BackupDamaged, message).with_hint(hint));
    }
    let events = store.in_flight_events(None).collect().await?.len();
    Ok((events, store.pending_outbound().collect().await?.len()))
}
