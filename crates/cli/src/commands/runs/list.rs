//! `capstan runs list`.

use capstan_tape::{RunRecord, RunStatus, Store};

use super::super::{print_json, print_lines, replace_control_chars};
use crate::CommandError;

/// Which runs.
pub(super) struct RunFilter {
    pub(super) limit: usize,
    pub(super) status: Option<RunStatus>,
    pub(super) session: Option<String>,
}

impl RunFilter {
    fn matches(&self, run: &RunRecord) -> bool {
        self.status.is_none_or(|status| run.status == status)
            && self.session.as_ref().is_none_or(|session| run.session.as_str() == session)
    }

    /// The newest runs it takes. More and more are looked at until there are enough, or no more.
    async fn find(&self, store: &dyn Store) -> Result<Vec<RunRecord>, CommandError> {
        let mut looked_at = self.limit;
        loop {
            let runs = store.runs(looked_at).await?;
            let are_all = runs.len() < looked_at;
            let mut found: Vec<RunRecord> = runs.into_iter().filter(|run| self.matches(run)).collect();
            if are_all || found.len() >= self.limit {
                found.truncate(self.limit);
                return Ok(found);
            }
            looked_at = looked_at.saturating_mul(10);
        }
    }
}

pub(super) async fn list(store: &dyn Store, filter: &RunFilter, json: bool) -> Result<(), CommandError> {
    let runs = filter.find(store).await?;
    if json {
        return print_json(&runs);
    }
    print_lines(runs.iter().map(|run| replace_control_chars(&format_run(run))))
}

fn format_run(run: &RunRecord) -> String {
    let parent = run.parent.as_ref().map(|parent| format!("  (of {parent})")).unwrap_or_default();
    format!("{}  {:11}  {}  {}{parent}", run.run_id, run.status.as_str(), run.started_at, run.session)
}
