//! `capstan state list` and `capstan state show`.

use capstan_host::state_admin::{NamespaceSummary, RunnerNamespace, UnusedReason, namespace_limits, unused_reason};
use capstan_protocol::{SessionId, StateLimits, TapeName, Timestamp};
use capstan_tape::KeyValueRecord;
use serde::Serialize;
use serde_json::{Value, json};

use super::StateCommandContext;
use crate::CommandError;
use crate::commands::{format_age, print_json, print_lines, replace_control_chars};

/// Selection of namespaces.
pub(super) struct NamespaceFilter {
    pub(super) runner: Option<String>,
    pub(super) scope: Option<String>,
}

impl NamespaceFilter {
    fn matches(&self, row: &NamespaceRow) -> bool {
        self.runner.as_ref().is_none_or(|runner| row.runner_id.as_deref() == Some(runner))
            && self.scope.as_ref().is_none_or(|scope| row.scope == *scope)
    }
}

/// A namespace as listed.
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
    owner_label: String,
}

impl NamespaceRow {
    pub(super) fn to_line(&self, now: Timestamp) -> String {
        let owner = self.session_id.as_ref().map_or(self.owner_label.as_str(), SessionId::as_str);
        let owner = format!("{} {} {owner}", self.runner_id.as_deref().unwrap_or(self.kind), self.scope);
        let size = match self.limits {
            Some(limits) => {
                format!("{} of {} keys, {} of {} bytes", self.keys, limits.keys, self.bytes, limits.total_bytes)
            }
            None if self.keys == 1 => format!("1 key, {} bytes", self.bytes),
            None => format!("{} keys, {} bytes", self.keys, self.bytes),
        };
        let unused = self.unused.map(|reason| format!("  unused: {reason}")).unwrap_or_default();
        replace_control_chars(&format!(
            "{}  {}  {size}, {} ago{unused}",
            self.id,
            owner.trim_end(),
            format_age(self.changed_at, now)
        ))
    }
}

impl StateCommandContext<'_> {
    pub(super) async fn list(&self, filter: &NamespaceFilter, json: bool) -> Result<(), CommandError> {
        let mut rows = Vec::new();
        for summary in self.namespaces.list().await? {
            rows.push(self.row(&summary).await?);
        }
        rows.retain(|row| filter.matches(row));
        let now = Timestamp::now();
        if json { print_json(&rows) } else { print_lines(rows.iter().map(|row| row.to_line(now))) }
    }

    /// The row of a namespace, with its session, limits and users.
    pub(super) async fn row(&self, summary: &NamespaceSummary) -> Result<NamespaceRow, CommandError> {
        let (kind, runner_id, scope) = match &summary.namespace {
            RunnerNamespace::State { runner, scope, .. } => ("state", Some(runner.to_string()), json!(scope)),
            RunnerNamespace::Storage { area, .. } => ("storage", None, json!(area)),
        };
        let scope = scope.as_str().unwrap_or_default().to_owned();
        let tape = summary.namespace.owner().as_str().filter(|_| scope == "conversation");
        let session_id = match tape.and_then(|tape| TapeName::parse(tape).ok()) {
            Some(tape) => self.home.tapes()?.record(&tape).await?.and_then(|record| record.session),
            None => None,
        };
        Ok(NamespaceRow {
            id: summary.namespace.id(),
            kind,
            runner_id,
            scope,
            owner: summary.namespace.owner().clone(),
            session_id,
            keys: summary.key_count,
            bytes: summary.bytes,
            limits: namespace_limits(&summary.namespace, &self.bindings),
            changed_at: summary.changed_at,
            unused: unused_reason(&summary.namespace, self.namespace_users()),
            owner_label: summary.namespace.owner_label(),
        })
    }

    pub(super) async fn show(&self, id: &str, key: Option<&str>, as_json: bool) -> Result<(), CommandError> {
        let summary = self.namespaces.find(id).await?;
        if let Some(key) = key {
            let record = self.namespaces.get(&summary.namespace, key).await?;
            return if as_json { print_json(&record_to_json(&record)) } else { print_json(&record.value) };
        }
        let (row, records) = (self.row(&summary).await?, self.namespaces.values(&summary.namespace).await?);
        if as_json {
            let mut object = json!(row);
            object["values"] = records.iter().map(record_to_json).collect();
            return print_json(&object);
        }
        let line = |record: &KeyValueRecord| replace_control_chars(&format!("  {}  {}", record.key, record.value));
        print_lines(std::iter::once(row.to_line(Timestamp::now())).chain(records.iter().map(line)))
    }
}

fn record_to_json(record: &KeyValueRecord) -> Value {
    json!({ "key": record.key, "value": record.value, "written_at": record.at, "run_id": record.by })
}
