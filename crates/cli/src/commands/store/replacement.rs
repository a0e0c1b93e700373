//! Parts of the commands that replace the database of a home: `rollback` and `restore`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_protocol::{EntryId, ErrorCode, TapeName, Timestamp};
use capstan_store::{DatabaseSummary, JsonlTapeStore, SqliteStore};
use capstan_tape::{JournalStore as _, StoreError, TapeSlice, TapeStore};

use super::super::{CommandContext, external_tape_store};
use crate::{CommandError, home};

/// Hint for a database that another process has open.
const STOP_PROCESSES_HINT: &str =
    "stop every process of the home (`capstan serve`, chats, SQLite viewers), then try again; nothing was changed";

/// Path for the content of the database that is replaced.
pub(super) fn replaced_path(database: &Path) -> PathBuf {
    database.with_file_name(format!("capstan.db.replaced-{}", Timestamp::now().as_millis()))
}

/// Error for a database that a process uses.
pub(super) fn busy_error(message: impl Into<String>) -> CommandError {
    CommandError::new(ErrorCode::StoreBusy, message).with_hint(STOP_PROCESSES_HINT)
}

/// Replaces the database on a thread that may block.
pub(super) async fn run_replacement(
    replace: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
) -> Result<(), CommandError> {
    let replacing = tokio::task::spawn_blocking(replace);
    let result = replacing.await.map_err(|error| StoreError::io("replace the database", error))?;
    result.map_err(|error| match error {
        StoreError::Busy { what } => busy_error(format!("another process has {what} open")),
        other => other.into(),
    })
}

/// Store of the entries that a database has replicated. If the configured one is the database itself, entries of an earlier
/// configuration may be in files of the home.
pub(super) async fn replica_store(
    context: &CommandContext<'_>,
    database: &Path,
) -> Result<Option<Arc<dyn TapeStore>>, CommandError> {
    if let Some(external) = external_tape_store(&context.build_hooks())? {
        return Ok(Some(external));
    }
    let Some(tape) = find_replicated_tape(database).await? else { return Ok(None) };
    let folder = home::tapes_dir(&context.config.home);
    if folder.is_dir() {
        return Ok(Some(Arc::new(JsonlTapeStore::open(folder)?)));
    }
    let hint = "the entries of tapes that were stored as files belong in the folder `tapes` of the home: put it back; a \
                backup has it as FILE.tapes";
    Err(CommandError::from(StoreError::StoredElsewhere { tape }).with_hint(hint))
}

/// First tape with entries that are not in the database.
async fn find_replicated_tape(database: &Path) -> Result<Option<TapeName>, StoreError> {
    if DatabaseSummary::read(database)?.version > SqliteStore::SCHEMA_VERSION {
        // The tables of a newer version may differ.
        return Ok(None);
    }
    let store = SqliteStore::open_snapshot(database)?;
    let mut records = store.tapes();
    while let Some(record) = records.next().await? {
        if record.replicated_up_to > EntryId(0) {
            return Ok(Some(record.name));
        }
    }
    Ok(None)
}

/// Refuses if the external tape store has entries that the copy does not know: their ids would be assigned again.
pub(super) async fn check_external_tapes(context: &CommandContext<'_>, copy: &Path) -> Result<(), CommandError> {
    let Some(external) = replica_store(context, copy).await? else { return Ok(()) };
    let store = SqliteStore::open_snapshot(copy)?;
    for tape in external.tapes().await? {
        let head = store.tape(&tape).await?.map(|record| record.head);
        let last = external.read(&tape, &TapeSlice::last()).await?.pop().map(|entry| entry.id);
        if head.is_some_and(|head| last.is_some_and(|last| last > head)) {
            let message = format!("the tape store has entries of tape {tape} that are newer than the copy");
            let hint = "put the tapes of the same moment in place first: a backup has them in the folder FILE.tapes";
            return Err(CommandError::new(ErrorCode::TapeElsewhere, message).with_hint(hint));
        }
    }
    Ok(external.close().await?)
}
