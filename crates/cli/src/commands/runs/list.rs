//! `capstan runs list`.

use capstan_tape::{RunRecord, RunStatus, Store};

use super::super::{print_json, print_lines, replace_control_chars};
use crate::CommandError;

/// Selection of runs.
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

    /// The newest matching runs.
    async fn find(&self, store: &dyn Store) -> Result<Vec<RunRecord>, CommandError> {
        let (mut found, mut runs) = (Vec::new(), store.runs());
        while found.len() < self.limit
            && let Some(run) = runs.next().await?
        {
            found.extend(Some(run).filter(|run| self.matches(run)));
        }
        Ok(found)
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
