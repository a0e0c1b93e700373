//! Helper process: guard and init process of one tree.

mod descendants;
mod guard;
mod hidden_folders;
mod init_process;
mod landlock_rules;
mod main_process;
mod pid_namespace;
mod privileges;

use std::ffi::OsStr;

use crate::helper_program::HelperProgram;

/// Name of the helper in process lists, and its first argument, which no other program accepts by mistake.
pub(crate) const HELPER_NAME: &str = "capstan-sandbox";
pub(crate) const HELPER_ARGUMENT: &str = "--capstan-sandbox-helper";

/// Argument of a process that does nothing, to try out what the machine allows.
pub(crate) const PROBE_ARGUMENT: &str = "--capstan-sandbox-probe";

/// Exit code of a helper that could not do its work. The reason is in its report.
const HELPER_FAILURE_CODE: i32 = 70;

/// Runs the helper and exits, if this process was started as the helper; otherwise returns at once.
///
/// Must be the first call of `main`, while the process has one thread and has opened no files.
pub fn run_helper() {
    HelperProgram::record_capable();
    let mut args = std::env::args_os();
    let name = args.next();
    let Some(argument) = args.next() else { return };
    if argument == OsStr::new(PROBE_ARGUMENT) {
        std::process::exit(0);
    }
    if argument == OsStr::new(HELPER_ARGUMENT) && name.is_some_and(|name| name == OsStr::new(HELPER_NAME)) {
        let code = guard::run_guard().map_or(HELPER_FAILURE_CODE, |()| 0);
        std::process::exit(code);
    }
}
