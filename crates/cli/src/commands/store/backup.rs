//! `capstan store backup`.

use std::path::Path;
use std::sync::Arc;

use capstan_protocol::TapeName;
use capstan_store::{JsonlTapes, SqliteStore};
use capstan_tape::{Slice, Store, StoreError, TapeStore, Tapes};

use super::super::{print, tape_store};
use super::target::Target;
use crate::command_line::Context;
use crate::{Exit, Failure, builder};

pub(super) async fn backup(context: &Context<'_>, path: &Path, force: bool) -> Result<(), Failure> {
    let database = builder::database(&context.config);
    if SqliteStore::version_of(&database)?.is_none() {
        return Err(Failure::new("store-empty", format!("there is no {}", database.display()), Exit::Usage));
    }
    let target = Target::new(path, &database, force)?;
    let elsewhere = tape_store(&context.hooks())?;
    let done = copy(&database, elsewhere.as_ref(), &target).await;
    if let Some(elsewhere) = elsewhere {
        elsewhere.close().await?;
    }
    let Copied { tapes, files } = done?;
    let (shown, folder) = (target.path().to_owned(), target.tapes());
    target.place()?;
    print(&format!("backed up {tapes} tapes to {}, verified", shown.display()))?;
    match files {
        0 => Ok(()),
        files => print(&format!("the entries of {files} tapes are in {}", folder.display())),
    }
}

/// How much was copied.
struct Copied {
    tapes: usize,
    /// How many tapes have entries that are kept elsewhere.
    files: usize,
}

async fn copy(database: &Path, elsewhere: Option<&Arc<dyn TapeStore>>, target: &Target) -> Result<Copied, Failure> {
    // Before the database is copied: a tape that is here and not in the copy was never the database's own.
    let kept = match elsewhere {
        Some(elsewhere) => elsewhere.tapes().await?,
        None => Vec::new(),
    };
    copy_database(database, &target.new_file).await?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::snapshot(&target.new_file)?);
    let tapes = match elsewhere {
        Some(elsewhere) if !kept.is_empty() => {
            let files = JsonlTapes::open(target.make_tapes()?)?;
            copy_tapes(elsewhere.as_ref(), &kept, store.as_ref(), &files).await?;
            Tapes::kept_by(store, Arc::new(files))
        }
        _ => Tapes::new(store),
    };
    let problems = tapes.verify().await?;
    if let Some(first) = problems.first() {
        let more = match problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("the copy is damaged, as the store is: {}{more}", first.message);
        return Err(Failure::new("backup-damaged", message, Exit::Store));
    }
    Ok(Copied { tapes: tapes.list().await?.len(), files: kept.len() })
}

async fn copy_database(database: &Path, new_file: &Path) -> Result<(), StoreError> {
    let (database, new_file) = (database.to_owned(), new_file.to_owned());
    let copying = tokio::task::spawn_blocking(move || SqliteStore::copy_to(database, new_file));
    copying.await.map_err(|error| StoreError::io("copy the database", error))?
}

/// Copies what is kept elsewhere, as files, and cuts off what was written after the database was copied.
async fn copy_tapes(
    elsewhere: &dyn TapeStore,
    kept: &[TapeName],
    copied: &dyn Store,
    files: &JsonlTapes,
) -> Result<(), StoreError> {
    for tape in kept {
        let up_to = copied.tape(tape).await?.map(|record| record.head);
        let entries = elsewhere.read(tape, &Slice { up_to, ..Slice::default() }).await?;
        files.append(tape, &entries).await?;
    }
    Ok(())
}
