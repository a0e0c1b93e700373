//! The commands.

pub(crate) mod bindings;
pub(crate) mod chat;
mod config;
mod doctor;
mod document;
pub(crate) mod events;
mod hooks;
pub(crate) mod onboard;
mod plugin;
mod run;
pub(crate) mod runners;
pub(crate) mod runs;
mod serve;
mod serve_one;
mod signals;
pub(crate) mod skills;
mod standard_output;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod tape;
mod unique_keys;

pub(crate) use config::show_config;
pub(crate) use doctor::doctor;
pub(crate) use hooks::list_hooks;
pub(crate) use plugin::run_plugin_command;
pub(crate) use run::run;
pub(crate) use serve::serve;

use std::io::{BufWriter, Write as _};
use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::points::ProvideTapeStore;
use capstan_host::HostError;
use capstan_protocol::{ErrorCode, Timestamp};
use capstan_tape::TapeStore;

use crate::CommandError;

/// How a host is started that goes on, as it is told to whoever should.
pub(crate) const SERVE_COMMAND_EXAMPLE: &str = "capstan serve --channel NAME";

/// Prints lines of data to the standard output. A reader that has gone away, as `head` does, is no failure.
pub(crate) fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<(), CommandError> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let printed = lines.into_iter().try_for_each(|line| writeln!(output, "{line}")).and_then(|()| output.flush());
    match printed {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(output_error(&error.to_string())),
        _ => Ok(()),
    }
}

/// Prints a line of data.
pub(crate) fn print(line: &str) -> Result<(), CommandError> {
    print_lines([line.to_owned()])
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(value);
    print(&text.map_err(|error| output_error(&error.to_string()))?)
}

fn output_error(detail: &str) -> CommandError {
    CommandError::new(ErrorCode::OutputFailed, format!("cannot write to the standard output: {detail}"))
}

/// A line for a terminal: what stands on a tape may come from anywhere, and must not drive it.
pub(crate) fn replace_control_chars(line: &str) -> String {
    line.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// How long ago something was, in the largest unit that fits.
pub(crate) fn format_age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_millis().saturating_sub(at.as_millis()).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Where entries are kept beside the store, if they are. Whoever asks closes it.
pub(crate) fn external_tape_store(hooks: &HookRuntime) -> Result<Option<Arc<dyn TapeStore>>, CommandError> {
    let provided = hooks.call_first_sync::<ProvideTapeStore>(&()).map_err(HostError::from)?;
    Ok(provided.map(|provided| provided.value))
}

#[cfg(test)]
mod tests {
    use super::format_age;
    use capstan_protocol::Timestamp;

    #[test]
    fn an_age_is_told_in_the_largest_unit_that_fits() {
        let after = |seconds: i64| format_age(Timestamp::from_millis(0), Timestamp::from_millis(seconds * 1000));
        assert_eq!(
            [after(0), after(59), after(60), after(7200), after(200_000)],
            ["0 s", "59 s", "1 min", "2 h", "2 d"]
        );
        assert_eq!(after(-5), "0 s", "a clock that was set back");
    }
}
