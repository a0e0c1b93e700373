//! `capstan state clear`.

use capstan_host::state_admin::{NamespaceSummary, unused_reason};
use capstan_protocol::Timestamp;
use serde_json::json;

use super::StateCommandContext;
use crate::CommandError;
use crate::commands::{print, print_json};

const CLEAR_DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// What is to be cleared.
pub(super) struct ClearRequest {
    pub(super) namespace: Option<String>,
    pub(super) unused: bool,
    pub(super) older_than: Option<u32>,
    /// Whether it is removed, and not only said what would be.
    pub(super) is_confirmed: bool,
}

impl StateCommandContext<'_> {
    pub(super) async fn clear(&self, clearing: &ClearRequest, json: bool) -> Result<(), CommandError> {
        let now = Timestamp::now();
        let chosen = self.select_namespaces(clearing, now).await?;
        let does = if clearing.is_confirmed { "cleared" } else { "would clear" };
        let mut rows = Vec::new();
        let mut cleared = Ok(true);
        for (held, why) in &chosen {
            let row = self.row(held).await?;
            cleared = self.clear_one(clearing, held, why).await;
            match cleared {
                Ok(true) if json => rows.push(row),
                // Each is told when it is done: what comes after it may fail.
                Ok(true) => print(&format!("{does} {}", row.to_line(now)))?,
                Ok(false) => stderr_line!("note: {} is left as it is: it was changed just now", row.id),
                Err(_) => break,
            }
        }
        if json {
            print_json(&json!({ "cleared": clearing.is_confirmed, "spaces": rows }))?;
        } else if !clearing.is_confirmed && !chosen.is_empty() {
            stderr_line!("note: nothing was removed; the same with --yes removes it");
        }
        cleared.map(drop)
    }

    /// Clears a space, if it is to be cleared. What was chosen by what is known about it stays if it has changed since.
    async fn clear_one(
        &self,
        clearing: &ClearRequest,
        held: &NamespaceSummary,
        why: &str,
    ) -> Result<bool, CommandError> {
        if !clearing.is_confirmed {
            return Ok(true);
        }
        if clearing.namespace.is_some() {
            return Ok(self.namespaces.clear(&held.namespace, why).await.map(|_| true)?);
        }
        Ok(self.namespaces.clear_if_unchanged(held, why).await?)
    }

    /// The spaces that are meant, each with the reason that is told.
    async fn select_namespaces(
        &self,
        clearing: &ClearRequest,
        now: Timestamp,
    ) -> Result<Vec<(NamespaceSummary, String)>, CommandError> {
        if let Some(wanted) = &clearing.namespace {
            return Ok(vec![(self.namespaces.find(wanted).await?, "asked for".to_owned())]);
        }
        let reason = |held: &NamespaceSummary| {
            let mut reasons = Vec::new();
            if clearing.unused {
                reasons.push(unused_reason(&held.namespace, self.namespace_users())?.to_string());
            }
            if let Some(days) = clearing.older_than {
                let is_old =
                    now.as_millis().saturating_sub(held.changed_at.as_millis()) >= i64::from(days) * CLEAR_DAY_MILLIS;
                reasons.push(is_old.then(|| format!("nothing changed for {days} days"))?);
            }
            Some(reasons.join("; "))
        };
        let all = self.namespaces.list().await?;
        Ok(all.into_iter().filter_map(|held| reason(&held).map(|why| (held, why))).collect())
    }
}
