//! Confinement of file access to the workspace and to paths the user allows.
//!
//! [`PathBounds`] holds the rules and resolves a path under them; the resulting `BoundedPath` opens, locks and writes
//! the file so that a symbolic link created after the check cannot lead out of the bounds. Everything that reads a
//! workspace uses this module: the file tools, skills, workspace instructions and configuration.

mod bounded_path;
mod path_bounds;
mod steering_files;

pub use path_bounds::PathBounds;

pub(crate) use bounded_path::WriteOutcome;
pub(crate) use path_bounds::{path_error, resolve_target};
