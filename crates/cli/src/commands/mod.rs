//! The commands.

mod config;
mod hooks;
mod plugin;
mod run;
mod serve;
mod signals;
pub(crate) mod tape;

pub(crate) use config::config_show;
pub(crate) use hooks::hooks;
pub(crate) use plugin::plugin;
pub(crate) use run::run;
pub(crate) use serve::serve;

use std::io::{BufWriter, Write as _};

use crate::{Exit, Failure};

/// Prints lines of data to the standard output. A reader that has gone away, as `head` does, is no failure.
pub(crate) fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let printed = lines.into_iter().try_for_each(|line| writeln!(output, "{line}")).and_then(|()| output.flush());
    match printed {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("store-failed", format!("cannot write to the standard output: {error}"), Exit::Store))
        }
        _ => Ok(()),
    }
}

/// Prints a line of data.
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    print_lines([line.to_owned()])
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    print(&text.map_err(|error| Failure::new("store-failed", error.to_string(), Exit::Store))?)
}
