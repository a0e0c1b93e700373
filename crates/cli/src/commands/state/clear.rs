//! `capstan state clear`.

use capstan_host::state_admin::{NamespaceSummary, unused_reason};
use capstan_protocol::Timestamp;
use serde_json::json;

use super::StateCommandContext;
use crate::CommandError;
use crate::commands::{print, print_json};

const CLEAR_DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Selection of namespaces to clear.
pub(super) struct ClearRequest {
    pub(super) namespace: Option<String>,
    pub(super) unused: bool,
    pub(super) older_than: Option<u32>,
    /// Clear, instead of listing what would be cleared.
    pub(super) is_confirmed: bool,
}

impl StateCommandContext<'_> {
    pub(super) async fn clear(&self, request: &ClearRequest, json: bool) -> Result<(), CommandError> {
        let now = Timestamp::now();
        let selected = self.select_namespaces(request, now).await?;
        let verb = if request.is_confirmed { "cleared" } else { "would clear" };
        let mut rows = Vec::new();
        let mut cleared = Ok(true);
        for (summary, reason) in &selected {
            let row = self.row(summary).await?;
            cleared = self.clear_one(request, summary, reason).await;
            match cleared {
                Ok(true) if json => rows.push(row),
                // Printed at once, because a later one may fail.
                Ok(true) => print(&format!("{verb} {}", row.to_line(now)))?,
                Ok(false) => stderr_line!("note: {} was not cleared: it has changed since it was selected", row.id),
                Err(_) => break,
            }
        }
        if json {
            print_json(&json!({ "cleared": request.is_confirmed, "spaces": rows }))?;
        } else if !request.is_confirmed && !selected.is_empty() {
            stderr_line!("note: nothing was removed; add --yes to remove it");
        }
        cleared.map(drop)
    }

    /// Clears a namespace if confirmed. Skips a namespace that was selected by its properties and has changed since.
    async fn clear_one(
        &self,
        request: &ClearRequest,
        summary: &NamespaceSummary,
        reason: &str,
    ) -> Result<bool, CommandError> {
        if !request.is_confirmed {
            return Ok(true);
        }
        if request.namespace.is_some() {
            return Ok(self.namespaces.clear(&summary.namespace, reason).await.map(|_| true)?);
        }
        Ok(self.namespaces.clear_if_unchanged(summary, reason).await?)
    }

    /// Selected namespaces, each with the reason that is recorded.
    async fn select_namespaces(
        &self,
        request: &ClearRequest,
        now: Timestamp,
    ) -> Result<Vec<(NamespaceSummary, String)>, CommandError> {
        if let Some(id) = &request.namespace {
            return Ok(vec![(self.namespaces.find(id).await?, "asked for".to_owned())]);
        }
        let reason = |summary: &NamespaceSummary| {
            let mut reasons = Vec::new();
            if request.unused {
                reasons.push(unused_reason(&summary.namespace, self.namespace_users())?.to_string());
            }
            if let Some(days) = request.older_than {
                let age = now.as_millis().saturating_sub(summary.changed_at.as_millis());
                let is_old = age >= i64::from(days) * CLEAR_DAY_MILLIS;
                reasons.push(is_old.then(|| format!("nothing changed for {days} days"))?);
            }
            Some(reasons.join("; "))
        };
        let all = self.namespaces.list().await?;
        Ok(all.into_iter().filter_map(|summary| reason(&summary).map(|reason| (summary, reason))).collect())
    }
}
