//! The names of events that only the host writes: recovery, artifacts and the audit trust them.

/// Whole names.
const RESERVED_NAMES: [&str; 4] = ["command", "handoff", "outbound", "run"];
/// What names begin with.
const RESERVED_PREFIXES: [&str; 15] = [
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
    RESERVED_NAMES.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
