//! Tapes as JSONL files: one object per line with the keys `id`, `kind`, `payload`, `meta`, `date`.
//!
//! - [`JsonlTapes`] keeps live tapes in a directory.
//! - [`read_file`] reads a file anywhere, and [`write_line`] writes a line of one.
//! - [`legacy`] joins the results of each step, as the system these files come from expects them.
//!
//! A crash in the middle of an append leaves a torn last line. It is never taken for an entry, never deleted, and
//! never hides the lines before it. Any other line that cannot be read is an error that names it.

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
