//! Fail points: the process kills itself right before or right after a chosen commit. Without the feature `fail-points`
//! they have no effect.
//!
//! # Environment variables
//!
//! - `CAPSTAN_FAIL_TRACE=FILE` writes a line to the file before and after every commit: `LABEL#N before` and
//!   `LABEL#N after`.
//! - `CAPSTAN_FAIL_AT="LABEL#N before"` ends the process at this point with SIGKILL.
//!
//! A label names the content of the commit, such as `accept+lease`; N counts the commits with that label. While either
//! variable is set, every batch has a transaction of its own.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use capstan_tape::{Batch, Fact, TapeEventKind};

/// Number of commits with each label.
static COMMIT_COUNTS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

/// Fail point of a commit; empty if fail points are not enabled.
pub(super) struct FailPoint(Option<String>);

impl FailPoint {
    pub(super) fn for_batches<'a>(batches: impl Iterator<Item = &'a Batch>) -> Self {
        if max_group_batches().is_none() {
            return Self(None);
        }
        Self::counted(&commit_label(batches))
    }

    /// Fail point of a step other than the commit of a batch.
    pub(super) fn named(label: &str) -> Self {
        if max_group_batches().is_none() {
            return Self(None);
        }
        Self::counted(label)
    }

    fn counted(label: &str) -> Self {
        let mut counts = COMMIT_COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get_or_insert_default().entry(label.to_owned()).or_default();
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
            traced.expect("the trace file is writable");
        }
        if std::env::var("CAPSTAN_FAIL_AT").is_ok_and(|at| at == point) {
            let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            killed.expect("a process can signal itself");
            // The commit must not continue before the signal arrives.
            loop {
                std::thread::park();
            }
        }
    }
}

/// Override for the maximum number of batches in a transaction.
pub(super) fn max_group_batches() -> Option<usize> {
    let is_set = |name| std::env::var_os(name).is_some();
    (cfg!(feature = "fail-points") && (is_set("CAPSTAN_FAIL_TRACE") || is_set("CAPSTAN_FAIL_AT"))).then_some(1)
}

/// Label of a commit: one word for each kind of fact that characterises it.
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
