//! The commands, a module each, and what they share.

pub(crate) mod artifacts;
pub(crate) mod bindings;
pub(crate) mod chat;
pub(crate) mod config;
mod context;
pub(crate) mod doctor;
mod document;
pub(crate) mod events;
pub(crate) mod hooks;
pub(crate) mod onboard;
pub(crate) mod outbox;
pub(crate) mod run;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod serve;
mod serve_one;
mod signals;
pub(crate) mod skills;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod tape;
pub(crate) mod trust;
mod unique_keys;

pub(crate) use context::{CommandContext, WorkspaceFlag};

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::points::ProvideTapeStore;
use capstan_host::HostError;
use capstan_protocol::{Timestamp, escape_line, truncate_chars};
use capstan_tape::TapeStore;

use crate::CommandError;
use crate::output::{print, print_bytes, print_json, print_json_lines, print_lines};
use context::parse_name;

/// The command that starts a long-running host, as quoted in hints.
const SERVE_COMMAND_EXAMPLE: &str = "capstan serve --channel NAME";

/// Maximum length of an entry or event shown on one line.
const MAX_LINE_CHARS: usize = 160;

/// Shows a text on one line. Line ends and tabs become spaces; hidden characters are shown as escapes, because text from a
/// tape must neither control the terminal nor hide there.
fn replace_control_chars(line: &str) -> String {
    escape_line(&line.replace(['\n', '\r', '\t'], " "))
}

/// Truncates a text to [`MAX_LINE_CHARS`], with an ellipsis.
fn truncate_line(text: &str) -> String {
    truncate_chars(text, MAX_LINE_CHARS, "…")
}

/// Formats the time since `at` in the largest unit that fits.
fn format_age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_millis().saturating_sub(at.as_millis()).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The external tape store that a plugin provides, if any. The caller closes it.
fn external_tape_store(hooks: &HookRuntime) -> Result<Option<Arc<dyn TapeStore>>, CommandError> {
    let provided = hooks.call_first_sync::<ProvideTapeStore>(&()).map_err(HostError::from)?;
    Ok(provided.map(|provided| provided.value))
}

#[cfg(test)]
mod tests {
    use super::format_age;
    use capstan_protocol::Timestamp;

    #[test]
    fn age_is_formatted_in_the_largest_unit_that_fits() {
        let after = |seconds: i64| format_age(Timestamp::from_millis(0), Timestamp::from_millis(seconds * 1000));
        assert_eq!(
            [after(0), after(59), after(60), after(7200), after(200_000)],
            ["0 s", "59 s", "1 min", "2 h", "2 d"]
        );
        assert_eq!(after(-5), "0 s", "a clock that was set back");
    }
}
