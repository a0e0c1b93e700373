//! `capstan runs list`.

use capstan_tape::{RunRecord, RunStatus, Store};

use super::super::{plain, print_json, print_lines};
use crate::Failure;

/// Which runs.
pub(super) struct Filter {
    pub(super) limit: usize,
    pub(super) status: Option<RunStatus>,
    pub(super) session: Option<String>,
}

impl Filter {
    fn takes(&self, run: &RunRecord) -> bool {
        self.status.is_none_or(|status| run.status == status)
            && self.session.as_ref().is_none_or(|session| run.session.as_str() == session)
    }

    /// The newest runs it takes. More and more are looked at until there are enough, or no more.
    async fn find(&self, store: &dyn Store) -> Result<Vec<RunRecord>, Failure> {
        let mut looked_at = self.limit;
        loop {
            let runs = store.runs(looked_at).await?;
            let are_all = runs.len() < looked_at;
            let mut found: Vec<RunRecord> = runs.into_iter().filter(|run| self.takes(run)).collect();
            if are_all || found.len() >= self.limit {
                found.truncate(self.limit);
                return Ok(found);
            }
            looked_at = looked_at.saturating_mul(10);
        }
    }
}

pub(super) async fn list(store: &dyn Store, filter: &Filter, json: bool) -> Result<(), Failure> {
    let runs = filter.find(store).await?;
    if json {
        return print_json(&runs);
    }
    print_lines(runs.iter().map(|run| plain(&line(run))))
}

fn line(run: &RunRecord) -> String {
    let parent = run.parent.as_ref().map(|parent| format!("  (of {parent})")).unwrap_or_default();
    format!("{}  {:11}  {}  {}{parent}", run.run_id, run.status.as_str(), run.started_at, run.session)
}
