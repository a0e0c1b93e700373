//! `capstan store rollback`.

use std::path::{Path, PathBuf};

use capstan_protocol::ErrorCode;
use capstan_store::{DatabaseSummary, VersionCopy, check_database_file, replace_database};
use serde_json::json;

use super::super::{CommandContext, print_json, print_lines};
use super::replacement::{check_external_tapes, replaced_path, run_replacement};
use crate::{CommandError, home};

/// A copy to return to, compared with the database.
struct RollbackPlan {
    database: PathBuf,
    copy: VersionCopy,
    current: DatabaseSummary,
    kept: DatabaseSummary,
}

pub(super) async fn roll_back(context: &CommandContext<'_>, dry_run: bool, json: bool) -> Result<(), CommandError> {
    let plan = RollbackPlan::new(home::database_path(&context.config.home))?;
    check_external_tapes(context, &plan.copy.path).await?;
    let replaced = if dry_run { None } else { Some(plan.execute().await?) };
    if json {
        return print_json(&plan.to_json(replaced.as_deref()));
    }
    print_lines(plan.describe(replaced.as_deref()))
}

impl RollbackPlan {
    fn new(database: PathBuf) -> Result<Self, CommandError> {
        if !database.exists() {
            return Err(CommandError::new(ErrorCode::StoreEmpty, format!("{} does not exist", database.display())));
        }
        let current = DatabaseSummary::read(&database)?;
        let copies = VersionCopy::find_all(&database)?;
        let Some(copy) = copies.into_iter().find(|copy| copy.version < current.version) else {
            let message = format!("there is no copy of {} from before a migration", database.display());
            let hint = "a migration keeps one next to the database as capstan.db.vN; otherwise restore a backup";
            return Err(CommandError::new(ErrorCode::Usage, message).with_hint(hint));
        };
        check_database_file(&copy.path)?;
        let kept = DatabaseSummary::read(&copy.path)?;
        Ok(Self { database, copy, current, kept })
    }

    /// Replaces the database by the copy, and returns the file with the replaced content.
    async fn execute(&self) -> Result<PathBuf, CommandError> {
        let replaced = replaced_path(&self.database);
        let (database, copy, kept) = (self.database.clone(), self.copy.path.clone(), replaced.clone());
        run_replacement(move || replace_database(database, copy, kept)).await?;
        Ok(replaced)
    }

    fn lost_entries(&self) -> u64 {
        self.current.entries.saturating_sub(self.kept.entries)
    }

    fn lost_events(&self) -> u64 {
        self.current.events.saturating_sub(self.kept.events)
    }

    fn describe(&self, replaced: Option<&Path>) -> Vec<String> {
        let (copy, from, to) = (self.copy.path.display(), self.current.version, self.kept.version);
        let lost = format!(
            "not in the copy, written since the migration: {} entries, {} events",
            self.lost_entries(),
            self.lost_events()
        );
        match replaced {
            None => vec![
                format!("would return from schema {from} to schema {to}, the copy {copy}"),
                lost,
                "nothing was changed".to_owned(),
            ],
            Some(replaced) => vec![
                format!("returned from schema {from} to schema {to}, the copy {copy}"),
                lost,
                format!("the replaced database is {}", replaced.display()),
                format!("use a version of Capstan with schema {to} now: this one migrates the database again"),
            ],
        }
    }

    fn to_json(&self, replaced: Option<&Path>) -> serde_json::Value {
        json!({ "database": self.database, "copy": self.copy.path, "from": self.current.version,
                "to": self.kept.version, "lost_entries": self.lost_entries(), "lost_events": self.lost_events(),
                "replaced": replaced, "changed": replaced.is_some() })
    }
}
