//! Executable that serves as the helper.

use std::path::{Path, PathBuf};

/// Executable whose `main` calls [`run_helper`](crate::run_helper) first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperProgram {
    program: PathBuf,
}

impl HelperProgram {
    /// Returns the executable of this process. It is the one that is running, also after its file was replaced or removed.
    pub fn current() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }

    /// Returns another executable that calls [`run_helper`](crate::run_helper).
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Returns the path of the executable.
    pub fn path(&self) -> &Path {
        &self.program
    }
}
