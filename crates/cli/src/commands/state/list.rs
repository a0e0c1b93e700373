//! `capstan state list` and `capstan state show`.

use capstan_host::state_admin::{NamespaceSummary, RunnerNamespace, UnusedReason, namespace_limits, unused_reason};
use capstan_protocol::{SessionId, StateLimits, TapeName, Timestamp};
use capstan_tape::KeyValueRecord;
use serde::Serialize;
use serde_json::{Value, json};

use super::StateCommandContext;
use crate::CommandError;
use crate::commands::{format_age, print_json, print_lines, replace_control_chars};

/// Which spaces.
pub(super) struct NamespaceFilter {
    pub(super) runner: Option<String>,
    pub(super) scope: Option<String>,
}

impl NamespaceFilter {
    fn matches(&self, row: &NamespaceRow) -> bool {
        self.runner.as_ref().is_none_or(|wanted| row.runner_id.as_deref() == Some(wanted))
            && self.scope.as_ref().is_none_or(|wanted| row.scope == *wanted)
    }
}

/// A space, as it is shown.
#[derive(Serialize)]
pub(super) struct NamespaceRow {
    pub(super) id: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    runner_id: Option<String>,
    scope: String,
    owner: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    keys: u64,
    bytes: u64,
    limits: Option<StateLimits>,
    changed_at: Timestamp,
    unused: Option<UnusedReason>,
    #[serde(skip)]
    words: String,
}

impl NamespaceRow {
    pub(super) fn to_line(&self, now: Timestamp) -> String {
        let whose = self.session_id.as_ref().map_or(self.words.as_str(), SessionId::as_str);
        let whose = format!("{} {} {whose}", self.runner_id.as_deref().unwrap_or(self.kind), self.scope);
        let room = match self.limits {
            Some(limits) => {
                format!("{} of {} keys, {} of {} bytes", self.keys, limits.keys, self.bytes, limits.total_bytes)
            }
            None if self.keys == 1 => format!("1 key, {} bytes", self.bytes),
            None => format!("{} keys, {} bytes", self.keys, self.bytes),
        };
        let unused = self.unused.map(|why| format!("  unused: {why}")).unwrap_or_default();
        replace_control_chars(&format!(
            "{}  {}  {room}, {} ago{unused}",
            self.id,
            whose.trim_end(),
            format_age(self.changed_at, now)
        ))
    }
}

impl StateCommandContext<'_> {
    pub(super) async fn list(&self, filter: &NamespaceFilter, json: bool) -> Result<(), CommandError> {
        let mut rows = Vec::new();
        for held in self.namespaces.list().await? {
            rows.push(self.row(&held).await?);
        }
        rows.retain(|row| filter.matches(row));
        let now = Timestamp::now();
        if json { print_json(&rows) } else { print_lines(rows.iter().map(|row| row.to_line(now))) }
    }

    /// A space with all that is known about it.
    pub(super) async fn row(&self, held: &NamespaceSummary) -> Result<NamespaceRow, CommandError> {
        let (kind, runner_id, scope) = match &held.namespace {
            RunnerNamespace::State { runner, scope, .. } => ("state", Some(runner.to_string()), json!(scope)),
            RunnerNamespace::Storage { area, .. } => ("storage", None, json!(area)),
        };
        let scope = scope.as_str().unwrap_or_default().to_owned();
        let tape = held.namespace.owner().as_str().filter(|_| scope == "conversation");
        let session_id = match tape.and_then(|tape| TapeName::parse(tape).ok()) {
            Some(tape) => self.scope.tapes()?.record(&tape).await?.and_then(|record| record.session),
            None => None,
        };
        Ok(NamespaceRow {
            id: held.namespace.id(),
            kind,
            runner_id,
            scope,
            owner: held.namespace.owner().clone(),
            session_id,
            keys: held.key_count,
            bytes: held.bytes,
            limits: namespace_limits(&held.namespace, &self.bindings),
            changed_at: held.changed_at,
            unused: unused_reason(&held.namespace, self.namespace_users()),
            words: held.namespace.owner_label(),
        })
    }

    pub(super) async fn show(&self, wanted: &str, key: Option<&str>, as_json: bool) -> Result<(), CommandError> {
        let held = self.namespaces.find(wanted).await?;
        if let Some(key) = key {
            let kept = self.namespaces.get(&held.namespace, key).await?;
            return if as_json { print_json(&state_entry_to_json(&kept)) } else { print_json(&kept.value) };
        }
        let (row, values) = (self.row(&held).await?, self.namespaces.values(&held.namespace).await?);
        if as_json {
            let mut shown = json!(row);
            shown["values"] = values.iter().map(state_entry_to_json).collect();
            return print_json(&shown);
        }
        let line = |kept: &KeyValueRecord| replace_control_chars(&format!("  {}  {}", kept.key, kept.value));
        print_lines(std::iter::once(row.to_line(Timestamp::now())).chain(values.iter().map(line)))
    }
}

fn state_entry_to_json(kept: &KeyValueRecord) -> Value {
    json!({ "key": kept.key, "value": kept.value, "written_at": kept.at, "run_id": kept.by })
}
