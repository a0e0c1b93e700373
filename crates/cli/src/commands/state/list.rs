//! `capstan state list` and `capstan state show`.

use capstan_host::keeping::{Held, Space, Unused, limits_of, unused};
use capstan_protocol::{SessionId, StateLimits, TapeName, Timestamp};
use capstan_tape::Kept;
use serde::Serialize;
use serde_json::{Value, json};

use super::Looked;
use crate::Failure;
use crate::commands::{age, plain, print_json, print_lines};

/// Which spaces.
pub(super) struct Filter {
    pub(super) runner: Option<String>,
    pub(super) scope: Option<String>,
}

impl Filter {
    fn takes(&self, row: &Row) -> bool {
        self.runner.as_ref().is_none_or(|wanted| row.runner_id.as_deref() == Some(wanted))
            && self.scope.as_ref().is_none_or(|wanted| row.scope == *wanted)
    }
}

/// A space, as it is shown.
#[derive(Serialize)]
pub(super) struct Row {
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
    unused: Option<Unused>,
    #[serde(skip)]
    words: String,
}

impl Row {
    pub(super) fn line(&self, now: Timestamp) -> String {
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
        plain(&format!("{}  {}  {room}, {} ago{unused}", self.id, whose.trim_end(), age(self.changed_at, now)))
    }
}

impl Looked<'_> {
    pub(super) async fn list(&self, filter: &Filter, json: bool) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for held in self.spaces.all().await? {
            rows.push(self.row(&held).await?);
        }
        rows.retain(|row| filter.takes(row));
        let now = Timestamp::now();
        if json { print_json(&rows) } else { print_lines(rows.iter().map(|row| row.line(now))) }
    }

    /// A space with all that is known about it.
    pub(super) async fn row(&self, held: &Held) -> Result<Row, Failure> {
        let (kind, runner_id, scope) = match &held.space {
            Space::State { runner, scope, .. } => ("state", Some(runner.to_string()), json!(scope)),
            Space::Storage { area, .. } => ("storage", None, json!(area)),
        };
        let scope = scope.as_str().unwrap_or_default().to_owned();
        let tape = held.space.owner().as_str().filter(|_| scope == "conversation");
        let session_id = match tape.and_then(|tape| TapeName::parse(tape).ok()) {
            Some(tape) => self.scope.tapes()?.record(&tape).await?.and_then(|record| record.session),
            None => None,
        };
        Ok(Row {
            id: held.space.id(),
            kind,
            runner_id,
            scope,
            owner: held.space.owner().clone(),
            session_id,
            keys: held.keys,
            bytes: held.bytes,
            limits: limits_of(&held.space, &self.bindings),
            changed_at: held.at,
            unused: unused(&held.space, self.users()),
            words: held.space.owner_words(),
        })
    }

    pub(super) async fn show(&self, wanted: &str, key: Option<&str>, as_json: bool) -> Result<(), Failure> {
        let held = self.spaces.find(wanted).await?;
        if let Some(key) = key {
            let kept = self.spaces.get(&held.space, key).await?;
            return if as_json { print_json(&value(&kept)) } else { print_json(&kept.value) };
        }
        let (row, values) = (self.row(&held).await?, self.spaces.values(&held.space).await?);
        if as_json {
            let mut shown = json!(row);
            shown["values"] = values.iter().map(value).collect();
            return print_json(&shown);
        }
        let line = |kept: &Kept| plain(&format!("  {}  {}", kept.key, kept.value));
        print_lines(std::iter::once(row.line(Timestamp::now())).chain(values.iter().map(line)))
    }
}

fn value(kept: &Kept) -> Value {
    json!({ "key": kept.key, "value": kept.value, "written_at": kept.at, "run_id": kept.by })
}
