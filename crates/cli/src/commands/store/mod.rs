//! `capstan store`.

mod backup;
mod backup_target;
mod stale_backups;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use capstan_store::SqliteStore;
use clap::Subcommand;
use serde_json::json;

use super::{print, print_json};
use crate::command_line::CommandContext;
use crate::{CommandError, builder};

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Copies the store as it is at one moment, while others go on writing, and verifies the copy.
    Backup {
        /// The file to make. Tapes that are kept as files go to a folder PATH.tapes beside it.
        #[arg(value_name = "PATH")]
        target: PathBuf,
        /// Replaces what is there.
        #[arg(long)]
        force: bool,
    },
    /// Brings the database to the newest version.
    Migrate {
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// What backups left in these folders that were broken off.
pub(super) fn find_unfinished_backups(folders: &[&Path]) -> Vec<PathBuf> {
    let now = SystemTime::now();
    let mut found: Vec<PathBuf> =
        folders.iter().flat_map(|folder| stale_backups::find_stale_backups(folder, now)).collect();
    found.sort();
    found.dedup();
    found
}

/// Removes what a backup left that was broken off.
pub(super) fn remove_unfinished_backup(unfinished: &Path) -> std::io::Result<()> {
    backup_target::remove_path(unfinished)
}

pub(crate) async fn run(context: CommandContext<'_>, command: StoreCommand) -> Result<(), CommandError> {
    match command {
        StoreCommand::Backup { target, force } => backup::run_backup(&context, &target, force).await,
        StoreCommand::Migrate { json } => migrate_store(&context, json),
    }
}

fn migrate_store(context: &CommandContext<'_>, json: bool) -> Result<(), CommandError> {
    let database = builder::database_path(&context.config);
    let from = SqliteStore::read_schema_version(&database)?;
    let to = SqliteStore::SCHEMA_VERSION;
    if from.is_some_and(|from| from < to) {
        drop(SqliteStore::open(&database)?);
    }
    if json {
        return print_json(&json!({ "database": database, "from": from, "to": from.map(|_| to) }));
    }
    print(&match from {
        None => format!("{} is not there yet: nothing to do", database.display()),
        Some(from) if from < to => format!("brought {} from schema {from} to {to}", database.display()),
        Some(from) => format!("{} has schema {from}, the newest: nothing to do", database.display()),
    })
}
