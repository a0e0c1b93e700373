//! Executable that serves as the helper.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when this process has called [`run_helper`](crate::run_helper), and would have become a helper if started as one.
static IS_HELPER_CAPABLE: AtomicBool = AtomicBool::new(false);

/// Executable whose `main` calls [`run_helper`](crate::run_helper) first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperProgram {
    program: PathBuf,
    is_current: bool,
}

impl HelperProgram {
    /// Returns the executable of this process. It is the one that is running, also after its file was replaced or removed.
    pub fn current() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), is_current: true }
    }

    /// Returns another executable that calls [`run_helper`](crate::run_helper).
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), is_current: false }
    }

    /// Returns the path of the executable.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// Records that this process can serve as the helper.
    pub(crate) fn record_capable() {
        IS_HELPER_CAPABLE.store(true, Ordering::Relaxed);
    }

    /// Checks that the executable can serve as the helper: another program, started by mistake, would do its own work.
    pub(crate) fn ensure_capable(&self) -> io::Result<()> {
        self.ensure_capable_if(IS_HELPER_CAPABLE.load(Ordering::Relaxed))
    }

    fn ensure_capable_if(&self, is_recorded: bool) -> io::Result<()> {
        if !self.is_current || is_recorded {
            return Ok(());
        }
        Err(io::Error::other("this program does not call `run_helper` first in `main`"))
    }
}

#[cfg(test)]
mod tests {
    use super::HelperProgram;

    #[test]
    fn x05_a_program_that_cannot_be_the_helper_is_not_started_again() {
        assert!(HelperProgram::current().ensure_capable_if(false).is_err());
        assert!(HelperProgram::current().ensure_capable_if(true).is_ok());
        assert!(HelperProgram::at("/other").ensure_capable_if(false).is_ok());
        assert!(HelperProgram::current().ensure_capable().is_ok(), "test binaries enter the helper before `main`");
    }
}
