//! Stores for tapes: implementations of the store contracts in `capstan-tape`.
//!
//! - [`SqliteStore`] is the default journal: one file, one writer thread, group commit. [`copy_database`] and
//!   [`is_database_locked`] work on its file without opening a store.
//! - [`JsonlTapeStore`] stores the entries of tapes as JSONL files; [`jsonl`] reads and writes such files anywhere.
//! - `conformance` (feature of the same name) is the test suite that every store passes, for use by other stores too.
//!
//! The rules that decide if a batch is applied are in `capstan_tape::rules`, not here: a store only reads and writes
//! rows.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod jsonl;
mod sqlite;

/// Mode of new files: conversations are private to their owner, whatever the umask.
const PRIVATE_FILE_MODE: u32 = 0o600;
/// Mode of new directories.
const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

pub use jsonl::JsonlTapeStore;
pub use sqlite::{
    DatabaseSummary, DeadLetters, HighWaterMark, SqliteOptions, SqliteStore, StateSetback, UnfinishedWork, VersionCopy,
    back_up_database, check_database_file, copy_database, is_database_locked, replace_database, restore_database,
};
