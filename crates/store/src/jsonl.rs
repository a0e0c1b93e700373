//! Tapes as JSONL files: one object per line with the keys `id`, `kind`, `payload`, `meta`, `date`.
//!
//! - [`JsonlTapes`] keeps live tapes in a directory.
//! - [`read_file`] reads a file anywhere, and [`write_line`] writes a line of one.
//! - [`legacy`] joins the results of each step, as the system these files come from expects them.
//!
//! A crash in the middle of an append leaves a torn last line. It is never taken for an entry, never deleted, and
//! never hides the lines before it. Any other line that cannot be read is an error that names it.

mod backward;
mod file;
mod legacy;
mod line;
mod slice;
mod tail;
mod tapes;

pub use file::{TapeFile, Torn, read_file};
pub use legacy::legacy;
pub use line::write_line;
pub use tapes::JsonlTapes;
