//! Where tapes are kept: implementations of the contract in `capstan-tape`, and nothing else.
//!
//! - [`SqliteStore`] is the default journal: one file, one writer thread, group commit.
//! - [`JsonlTapes`] keeps the entries of tapes as JSONL files, and [`jsonl`] reads and writes such files anywhere.
//! - `conformance` (feature of that name) is the suite every store passes; run it on your own.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod jsonl;
mod sqlite;

pub use jsonl::JsonlTapeStore;
pub use sqlite::{DeadLetters, SqliteOptions, SqliteStore};
