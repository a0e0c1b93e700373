//! `capstan store backup`.

use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{ErrorCode, TapeName};
use capstan_store::{JsonlTapeStore, SqliteStore};
use capstan_tape::{Store, StoreError, TapeRepository, TapeSlice, TapeStore};

use super::super::{external_tape_store, print};
use super::backup_target::BackupTarget;
use crate::command_line::CommandContext;
use crate::{CommandError, builder};

pub(super) async fn run_backup(context: &CommandContext<'_>, path: &Path, force: bool) -> Result<(), CommandError> {
    let database = builder::database_path(&context.config);
    if SqliteStore::read_schema_version(&database)?.is_none() {
        return Err(CommandError::new(ErrorCode::StoreEmpty, format!("there is no {}", database.display())));
    }
    let target = BackupTarget::new(path, &database, force)?;
    let elsewhere = external_tape_store(&context.build_hooks())?;
    let done = copy_store(&database, elsewhere.as_ref(), &target).await;
    if let Some(elsewhere) = elsewhere {
        elsewhere.close().await?;
    }
    let CopyCounts { tapes, files } = done?;
    let (shown, folder) = (target.path().to_owned(), target.tapes_dir());
    target.publish()?;
    print(&format!("backed up {tapes} tapes to {}, verified", shown.display()))?;
    match files {
        0 => Ok(()),
        files => print(&format!("the entries of {files} tapes are in {}", folder.display())),
    }
}

/// How much was copied.
struct CopyCounts {
    tapes: usize,
    /// How many tapes have entries that are kept elsewhere.
    files: usize,
}

async fn copy_store(
    database: &Path,
    elsewhere: Option<&Arc<dyn TapeStore>>,
    target: &BackupTarget,
) -> Result<CopyCounts, CommandError> {
    // Before the database is copied: a tape that is here and not in the copy was never the database's own.
    let kept = match elsewhere {
        Some(elsewhere) => elsewhere.tapes().await?,
        None => Vec::new(),
    };
    copy_database(database, &target.new_file).await?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_snapshot(&target.new_file)?);
    let tapes = match elsewhere {
        Some(elsewhere) if !kept.is_empty() => {
            let files = JsonlTapeStore::open(target.create_tapes_dir()?)?;
            copy_tapes(elsewhere.as_ref(), &kept, store.as_ref(), &files).await?;
            TapeRepository::with_external_store(store, Arc::new(files))
        }
        _ => TapeRepository::new(store),
    };
    let problems = tapes.verify().await?;
    if let Some(first) = problems.first() {
        let more = match problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("the copy is damaged, as the store is: {}{more}", first.message);
        return Err(CommandError::new(ErrorCode::BackupDamaged, message));
    }
    Ok(CopyCounts { tapes: tapes.list().await?.len(), files: kept.len() })
}

async fn copy_database(database: &Path, new_file: &Path) -> Result<(), StoreError> {
    let (database, new_file) = (database.to_owned(), new_file.to_owned());
    let copying = tokio::task::spawn_blocking(move || SqliteStore::copy_database(database, new_file));
    copying.await.map_err(|error| StoreError::io("copy the database", error))?
}

/// Copies what is kept elsewhere, as files, and cuts off what was written after the database was copied.
async fn copy_tapes(
    elsewhere: &dyn TapeStore,
    kept: &[TapeName],
    copied: &dyn Store,
    files: &JsonlTapeStore,
) -> Result<(), StoreError> {
    for tape in kept {
        let up_to = copied.tape(tape).await?.map(|record| record.head);
        let entries = elsewhere.read(tape, &TapeSlice { up_to, ..TapeSlice::default() }).await?;
        files.append(tape, &entries).await?;
    }
    Ok(())
}
