//! Parts of the commands that replace the database of a home: `rollback` and `restore`.

use std::path::{Path, PathBuf};

use capstan_protocol::{ErrorCode, Timestamp};
use capstan_store::SqliteStore;
use capstan_tape::{JournalStore as _, StoreError, TapeSlice};

use super::super::{CommandContext, external_tape_store};
use crate::CommandError;

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

/// Refuses if the external tape store has entries that the copy does not know: their ids would be assigned again.
pub(super) async fn check_external_tapes(context: &CommandContext<'_>, copy: &Path) -> Result<(), CommandError> {
    let Some(external) = external_tape_store(&context.build_hooks())? else { return Ok(()) };
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
