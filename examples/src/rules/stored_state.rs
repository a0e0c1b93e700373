//! What the host keeps for the rules.

use std::collections::BTreeMap;

use capstan::hooks::contracts::{RunApi, StateEntry};
use capstan::protocol::{ApiError, StateScope};
use serde_json::Value;

/// How many values are asked for at once.
const STATE_PAGE_SIZE: usize = 200;

/// Everything that is kept for somebody under keys that begin so, by key.
pub(super) async fn list_with_prefix(
    api: &RunApi,
    scope: StateScope,
    beginning: &str,
) -> Result<Vec<StateEntry>, ApiError> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = api.state.list(scope, cursor.as_deref(), STATE_PAGE_SIZE).await?;
        found.extend(page.items.into_iter().filter(|kept| kept.key.starts_with(beginning)));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// How often each thing was voted for, the most votes first.
pub(super) fn format_tally(votes: &[StateEntry]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for vote in votes.iter().filter_map(|vote| Value::as_str(&vote.value)) {
        *counts.entry(vote).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let lines: Vec<String> = counts.into_iter().map(|(what, count)| format!("{what}: {count}")).collect();
    lines.join(", ")
}
