//! `capstan store`.

mod backup;
mod backup_target;
mod replacement;
mod restore;
mod rollback;
mod stale_backups;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use capstan_store::SqliteStore;
use clap::Subcommand;
use serde_json::json;

use super::{CommandContext, print, print_json};
use crate::{CommandError, home};

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Write a verified snapshot of the database; safe while it is in use
    Backup {
        /// File to create; tapes stored as files go to the folder PATH.tapes
        #[arg(value_name = "PATH")]
        target: PathBuf,
        /// Overwrite an existing backup
        #[arg(long)]
        force: bool,
    },
    /// Replace the database with a backup; without --yes, only show what would be lost
    ///
    /// The replaced database is kept next to the new one. Refused while a Capstan process uses the home.
    ///
    /// Events in flight and pending messages of the backup may have been completed since. They are not repeated: the events
    /// end as failed, with a notice, and the messages are held.
    Restore(restore::RestoreArgs),
    /// Replace the database with the copy that its newest migration kept
    Rollback {
        /// Show the copy and what would be lost, without changing anything
        #[arg(long)]
        dry_run: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Migrate the database to the newest schema
    Migrate {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Files of interrupted backups in these folders.
pub(super) fn find_unfinished_backups(folders: &[&Path]) -> Vec<PathBuf> {
    let now = SystemTime::now();
    let mut found: Vec<PathBuf> =
        folders.iter().flat_map(|folder| stale_backups::find_stale_backups(folder, now)).collect();
    found.sort();
    found.dedup();
    found
}

/// Removes a file or folder of an interrupted backup.
pub(super) fn remove_unfinished_backup(unfinished: &Path) -> std::io::Result<()> {
    backup_target::remove_path(unfinished)
}

pub(crate) async fn run(context: CommandContext<'_>, command: StoreCommand) -> Result<(), CommandError> {
    match command {
        StoreCommand::Backup { target, force } => backup::run_backup(&context, &target, force).await,
        StoreCommand::Restore(arguments) => restore::restore(&context, &arguments).await,
        StoreCommand::Rollback { dry_run, json } => rollback::roll_back(&context, dry_run, json).await,
        StoreCommand::Migrate { json } => migrate_store(&context, json),
    }
}

fn migrate_store(context: &CommandContext<'_>, json: bool) -> Result<(), CommandError> {
    let database = home::database_path(&context.config.home);
    let from = SqliteStore::read_schema_version(&database)?;
    let to = SqliteStore::SCHEMA_VERSION;
    if from.is_some_and(|from| from < to) {
        drop(SqliteStore::open(&database)?);
    }
    if json {
        return print_json(&json!({ "database": database, "from": from, "to": from.map(|_| to) }));
    }
    print(&match from {
        None => format!("{} does not exist yet", database.display()),
        Some(from) if from < to => format!("migrated {} from schema {from} to {to}", database.display()),
        Some(from) => format!("{} already has the newest schema {from}", database.display()),
    })
}
