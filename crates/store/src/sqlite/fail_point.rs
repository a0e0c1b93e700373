//! Fail points: a process that is told to kills itself right before or right after a commit. Compiled in for tests only.
//!
//! `CAPSTAN_FAIL_TRACE=FILE` has every commit written to a file before and after it is made, as `LABEL#N before` and
//! `LABEL#N after`. `CAPSTAN_FAIL_AT="LABEL#N before"` ends the process there with SIGKILL. A label says what the
//! commit holds, such as `accept+lease`; N counts the commits with that label. While either is set every batch has a
//! transaction of its own.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use capstan_tape::{Batch, Fact, TapeEventKind};

/// How many commits there were with each label.
static COMMIT_COUNTS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

/// A commit, if anybody wants to know.
pub(super) struct FailPoint(Option<String>);

impl FailPoint {
    pub(super) fn for_batches<'a>(batches: impl Iterator<Item = &'a Batch>) -> Self {
        if max_group_batches().is_none() {
            return Self(None);
        }
        let label = commit_label(batches);
        let mut seen = COMMIT_COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = seen.get_or_insert_default().entry(label.clone()).or_default();
        *count += 1;
        Self(Some(format!("{label}#{count}")))
    }

    pub(super) fn before_commit(&self) {
        self.trigger("before");
    }

    pub(super) fn after_commit(&self) {
        self.trigger("after");
    }

    fn trigger(&self, moment: &str) {
        let Some(point) = &self.0 else { return };
        let point = format!("{point} {moment}");
        if let Ok(path) = std::env::var("CAPSTAN_FAIL_TRACE") {
            let traced = File::options().create(true).append(true).open(&path);
            let traced = traced.and_then(|mut file| writeln!(file, "{point}"));
            traced.expect("the trace of a test can be written");
        }
        if std::env::var("CAPSTAN_FAIL_AT").is_ok_and(|at| at == point) {
            let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            killed.expect("a process can end itself");
            // The signal is on its way, and nothing may happen before it comes.
            loop {
                std::thread::park();
            }
        }
    }
}

/// How many batches may share a transaction, if that is not the usual number.
pub(super) fn max_group_batches() -> Option<usize> {
    let is_asked = |name| std::env::var_os(name).is_some();
    (is_asked("CAPSTAN_FAIL_TRACE") || is_asked("CAPSTAN_FAIL_AT")).then_some(1)
}

/// What batches hold, in a word for each kind of fact that says what the commit is for.
fn commit_label<'a>(batches: impl Iterator<Item = &'a Batch>) -> String {
    let mut words: Vec<&str> = batches.flat_map(|batch| &batch.facts).filter_map(fact_label).collect();
    words.dedup();
    let mut seen = Vec::new();
    words.retain(|word| {
        !seen.contains(word) && {
            seen.push(word);
            true
        }
    });
    if words.is_empty() { "entries".to_owned() } else { words.join("+") }
}

fn fact_label(fact: &Fact) -> Option<&'static str> {
    match fact {
        Fact::AcceptEvent { .. } => Some("accept"),
        Fact::AdoptEvent { .. } => Some("adopt"),
        Fact::IngestEvent { .. } => Some("take-in"),
        Fact::SettleEvent { .. } => Some("settle"),
        Fact::OpenRun(_) => Some("open-run"),
        Fact::StartRun { .. } => Some("start-run"),
        Fact::EndRun { .. } => Some("end-run"),
        Fact::RequestCancel { .. } => Some("request-cancel"),
        Fact::EnqueueOutbound(_) => Some("enqueue"),
        Fact::AdoptOutbound { .. } => Some("adopt-outbound"),
        Fact::RecordDelivery { .. } => Some("delivery"),
        Fact::TakeLease { .. } => Some("lease"),
        Fact::ReleaseLease { .. } => Some("release"),
        Fact::RegisterWorkspace { .. } => Some("workspace"),
        Fact::AppendEntry { entry, .. } => match entry.kind.as_str() {
            "tool_call" => Some("tool-call"),
            "tool_result" => Some("tool-result"),
            "anchor" => Some("anchor"),
            _ if entry.event_kind() == Some(TapeEventKind::ArtifactCreated) => Some("artifact"),
            _ => None,
        },
        Fact::EnsureTape(_)
        | Fact::ImportEntries { .. }
        | Fact::MarkReplicated { .. }
        | Fact::ForkTape { .. }
        | Fact::CloseFork { .. }
        | Fact::ResetTape { .. }
        | Fact::PutBlob { .. }
        | Fact::RemoveBlob { .. }
        | Fact::PutState { .. } => None,
        Fact::PutKeyValue(_) | Fact::UpdateWithinQuota(_) | Fact::RemoveKeyValue { .. } => Some("keep"),
    }
}
