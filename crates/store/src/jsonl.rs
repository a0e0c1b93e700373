//! Tapes as JSONL files.
//!
//! - [`JsonlTapeStore`] stores live tapes in a directory.
//! - [`read_file`] reads any tape file, and [`format_line`] formats one line of it.
//! - [`to_bub_format`] joins the results of each step, as Bub expects them.
//!
//! # File format
//!
//! One JSON object per line with the keys `id`, `kind`, `payload`, `meta`, `date`. Bub introduced the format; unknown
//! kinds and keys are preserved.
//!
//! # Torn lines
//!
//! A crash in the middle of an append leaves a torn last line. Reads skip it, the next append moves it to a file of its
//! own, and it is never deleted. Any other line that cannot be parsed is an error that names the line.

mod backward_reader;
mod bub;
mod jsonl_tape_store;
mod line;
mod slice_reader;
mod tail;
mod tape_file;

pub use bub::to_bub_format;
pub use jsonl_tape_store::JsonlTapeStore;
pub use line::format_line;
pub use tape_file::{TapeFile, TornLine, read_file};
