//! The names of events that only the host writes: recovery, artifacts and the audit trust them.

/// Whole names.
const NAMES: [&str; 4] = ["command", "handoff", "outbound", "run"];
/// What names begin with.
const PREFIXES: [&str; 15] = [
    "action.",
    "api.",
    "artifact.",
    "binding.",
    "command.",
    "delivery.",
    "event.",
    "model.",
    "outbound.",
    "result.",
    "results.",
    "run.",
    "session.",
    "state.",
    "storage.",
];

/// Whether a name is the host's own.
pub(super) fn is_reserved(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
