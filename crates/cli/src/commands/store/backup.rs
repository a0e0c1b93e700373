//! `capstan store backup`.

use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{ErrorCode, TapeName};
use capstan_store::{DatabaseSummary, JsonlTapeStore, SqliteStore};
use capstan_tape::{Store, StoreError, TapeRepository, TapeSlice, TapeStore};

use super::super::{CommandContext, print};
use super::backup_target::BackupTarget;
use super::replacement::replica_store;
use crate::{CommandError, home};

pub(super) async fn run_backup(context: &CommandContext<'_>, path: &Path, force: bool) -> Result<(), CommandError> {
    if path == Path::new("-") {
        let message = "a backup cannot be written to the standard output";
        return Err(CommandError::new(ErrorCode::Usage, message).with_hint("give the path of a file; ./- is a file"));
    }
    let database = home::database_path(&context.config.home);
    if !database.exists() {
        return Err(CommandError::new(ErrorCode::StoreEmpty, format!("{} does not exist", database.display())));
    }
    let target = BackupTarget::new(path, &database, force)?;
    let external = replica_store(context, &database).await?;
    let copied = copy_store(&database, external.as_ref(), &target).await;
    if let Some(external) = external {
        external.close().await?;
    }
    let CopyCounts { tapes, files } = copied?;
    let (path, folder) = (target.path().to_owned(), target.tapes_dir());
    target.publish()?;
    let noun = if tapes == 1 { "tape" } else { "tapes" };
    print(&format!("backed up {tapes} {noun} to {}, verified", path.display()))?;
    match files {
        0 => Ok(()),
        files => print(&format!("the entries of {files} tapes are in {}", folder.display())),
    }
}

/// Numbers of copied tapes.
struct CopyCounts {
    tapes: usize,
    /// Tapes with entries in the external tape store.
    files: usize,
}

async fn copy_store(
    database: &Path,
    external: Option<&Arc<dyn TapeStore>>,
    target: &BackupTarget,
) -> Result<CopyCounts, CommandError> {
    // Listed before the database is copied: a listed tape that the copy lacks was never a tape of the database.
    let external_tapes = match external {
        Some(external) => external.tapes().await?,
        None => Vec::new(),
    };
    copy_database(database, &target.new_file).await?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_snapshot(&target.new_file)?);
    let tapes = match external {
        Some(external) if !external_tapes.is_empty() => {
            let files = JsonlTapeStore::open(target.create_tapes_dir()?)?;
            copy_tapes(external.as_ref(), &external_tapes, store.as_ref(), &files).await?;
            TapeRepository::with_external_store(store, Arc::new(files))
        }
        _ => TapeRepository::new(store),
    };
    let problems = match tapes.verify().await {
        // Tables of a newer version may be unknown here; `SQLite` can check the file all the same.
        Err(StoreError::Io { .. }) if is_newer(&target.new_file)? => {
            capstan_store::check_database_file(&target.new_file)?;
            Vec::new()
        }
        verified => verified?,
    };
    if let Some(first) = problems.first() {
        let more = match problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("the copy is damaged, as the store is: {}{more}", first.message);
        return Err(CommandError::new(ErrorCode::BackupDamaged, message));
    }
    Ok(CopyCounts { tapes: tapes.list().await?.len(), files: external_tapes.len() })
}

/// Returns true if a newer version of this program wrote the database.
fn is_newer(database: &Path) -> Result<bool, StoreError> {
    Ok(DatabaseSummary::read(database)?.version > SqliteStore::SCHEMA_VERSION)
}

async fn copy_database(database: &Path, new_file: &Path) -> Result<(), StoreError> {
    let (database, new_file) = (database.to_owned(), new_file.to_owned());
    let copying = tokio::task::spawn_blocking(move || capstan_store::back_up_database(database, new_file));
    copying.await.map_err(|error| StoreError::io("copy the database", error))?
}

/// Copies external tapes to files, up to the heads in the copied database.
async fn copy_tapes(
    external: &dyn TapeStore,
    names: &[TapeName],
    database: &dyn Store,
    files: &JsonlTapeStore,
) -> Result<(), StoreError> {
    for tape in names {
        let up_to = database.tape(tape).await?.map(|record| record.head);
        let entries = external.read(tape, &TapeSlice { up_to, ..TapeSlice::default() }).await?;
        files.append(tape, &entries).await?;
    }
    Ok(())
}
