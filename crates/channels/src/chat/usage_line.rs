//! Usage line at the end of a turn.

use std::time::Duration;

use capstan_protocol::Usage;

use super::tool_calls::format_elapsed;

/// Token counts, as far as they are known, and elapsed time of a turn.
pub(super) fn format_usage(usage: &Usage, elapsed: Duration) -> String {
    let known = [(usage.prompt_tokens, "in"), (usage.completion_tokens, "out")];
    let known = known.into_iter().filter_map(|(count, name)| Some(format!("{} {name}", abbreviate_count(count?))));
    known.chain([format_elapsed(elapsed)]).collect::<Vec<_>>().join(" · ")
}

fn abbreviate_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}.{}k", count / 1000, count % 1000 / 100),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}
