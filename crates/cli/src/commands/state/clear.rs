//! `capstan state clear`.

use capstan_host::keeping::{Held, unused};
use capstan_protocol::Timestamp;
use serde_json::json;

use super::Looked;
use crate::Failure;
use crate::commands::{print, print_json};

const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// What is to be cleared.
pub(super) struct Clearing {
    pub(super) space: Option<String>,
    pub(super) unused: bool,
    pub(super) older_than: Option<u32>,
    /// Whether it is removed, and not only said what would be.
    pub(super) yes: bool,
}

impl Looked<'_> {
    pub(super) async fn clear(&self, clearing: &Clearing, json: bool) -> Result<(), Failure> {
        let now = Timestamp::now();
        let chosen = self.chosen(clearing, now).await?;
        let does = if clearing.yes { "cleared" } else { "would clear" };
        let mut rows = Vec::new();
        let mut cleared = Ok(true);
        for (held, why) in &chosen {
            let row = self.row(held).await?;
            cleared = self.clear_one(clearing, held, why).await;
            match cleared {
                Ok(true) if json => rows.push(row),
                // Each is told when it is done: what comes after it may fail.
                Ok(true) => print(&format!("{does} {}", row.line(now)))?,
                Ok(false) => complain!("note: {} is left as it is: it was changed just now", row.id),
                Err(_) => break,
            }
        }
        if json {
            print_json(&json!({ "cleared": clearing.yes, "spaces": rows }))?;
        } else if !clearing.yes && !chosen.is_empty() {
            complain!("note: nothing was removed; the same with --yes removes it");
        }
        cleared.map(drop)
    }

    /// Clears a space, if it is to be cleared. What was chosen by what is known about it stays if it has changed since.
    async fn clear_one(&self, clearing: &Clearing, held: &Held, why: &str) -> Result<bool, Failure> {
        if !clearing.yes {
            return Ok(true);
        }
        if clearing.space.is_some() {
            return Ok(self.spaces.clear(&held.space, why).await.map(|_| true)?);
        }
        Ok(self.spaces.clear_unchanged(held, why).await?)
    }

    /// The spaces that are meant, each with the reason that is told.
    async fn chosen(&self, clearing: &Clearing, now: Timestamp) -> Result<Vec<(Held, String)>, Failure> {
        if let Some(wanted) = &clearing.space {
            return Ok(vec![(self.spaces.find(wanted).await?, "asked for".to_owned())]);
        }
        let reason = |held: &Held| {
            let mut reasons = Vec::new();
            if clearing.unused {
                reasons.push(unused(&held.space, self.users())?.to_string());
            }
            if let Some(days) = clearing.older_than {
                let is_old = now.as_millis().saturating_sub(held.at.as_millis()) >= i64::from(days) * DAY_MILLIS;
                reasons.push(is_old.then(|| format!("nothing changed for {days} days"))?);
            }
            Some(reasons.join("; "))
        };
        let all = self.spaces.all().await?;
        Ok(all.into_iter().filter_map(|held| reason(&held).map(|why| (held, why))).collect())
    }
}
