//! Stored state of the rules.

use std::collections::BTreeMap;

use capstan::hooks::contracts::{RunApi, StateEntry};
use capstan::protocol::{ApiError, StateScope};
use serde_json::Value;

/// Number of values per page.
const STATE_PAGE_SIZE: usize = 200;

/// Lists the values of a scope whose keys start with `prefix`.
pub(super) async fn list_with_prefix(
    api: &RunApi,
    scope: StateScope,
    prefix: &str,
) -> Result<Vec<StateEntry>, ApiError> {
    let (mut entries, mut cursor) = (Vec::new(), None);
    loop {
        let page = api.state.list(scope, prefix, cursor.as_deref(), STATE_PAGE_SIZE).await?;
        entries.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(entries);
        }
    }
}

/// Formats the number of votes per choice, most votes first.
pub(super) fn format_tally(votes: &[StateEntry]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for vote in votes.iter().filter_map(|vote| Value::as_str(&vote.value)) {
        *counts.entry(vote).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let lines: Vec<String> = counts.into_iter().map(|(choice, count)| format!("{choice}: {count}")).collect();
    lines.join(", ")
}
