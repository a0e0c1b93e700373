//! Limit of open files of this process, and the number of turns that it allows.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of active turns that the default of `max_active_turns` does not exceed.
pub(crate) const DEFAULT_ACTIVE_TURNS: u64 = 1000;
/// Files of the host itself: database and readers, sockets of the runtime, lock file, standard streams.
const RESERVED_FILES: u64 = 40;
/// Files of a turn: a connection to its model, and the pipes and handles of a command.
const FILES_PER_TURN: u64 = 4;

/// Soft limit before [`raise_file_limit`] raised it.
static INITIAL_SOFT_LIMIT: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of open files to the hard one: a host holds a connection for every running turn, and the usual
/// soft limit of 1024 is meant for programs that use `select`.
pub(crate) fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current.filter(|_| current != maximum) else { return };
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => _ = INITIAL_SOFT_LIMIT.set(soft),
        Err(error) => tracing::debug!(%error, "cannot raise the soft limit of open files"),
    }
}

/// Soft limit that commands get, if this process has raised its own.
pub(crate) fn command_file_limit() -> Option<u64> {
    INITIAL_SOFT_LIMIT.get().copied()
}

/// Default of `max_active_turns` under the current limit of open files.
pub(crate) fn default_active_turns() -> usize {
    active_turns_within(getrlimit(Resource::Nofile).current)
}

/// Number of active turns within this limit of open files, at least one. `None` is no limit.
fn active_turns_within(limit: Option<u64>) -> usize {
    let allowed = limit.map_or(u64::MAX, |files| files.saturating_sub(RESERVED_FILES) / FILES_PER_TURN);
    usize::try_from(allowed.clamp(1, DEFAULT_ACTIVE_TURNS)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::active_turns_within;

    #[test]
    fn t13_default_admits_a_thousand_turns_where_the_file_limit_allows_it() {
        let cases = [(None, 1000), (Some(1_048_576), 1000), (Some(4096), 1000), (Some(1024), 246), (Some(64), 6)];
        for (limit, turns) in cases {
            assert_eq!(active_turns_within(limit), turns, "{limit:?}");
        }
        assert_eq!(active_turns_within(Some(16)), 1, "a host without room still makes progress");
    }
}
