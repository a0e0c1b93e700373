//! The table of `docs/guarantees.md`: what a restart does, by kind of turn and commit.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use capstan::tape::OutboxStatus;

use crate::invariants::is_given_up;
use crate::script::TurnKind;
use crate::trial::TrialReport;

const TABLE_BEGIN_MARK: &str = "<!-- The crash matrix: written by its test, see below. -->\n";
const TABLE_END_MARK: &str = "<!-- The end of the crash matrix. -->\n";

/// A commit of a kind of turn, and what a restart does after a kill before and after it.
pub struct CrashTableRow {
    pub commit: String,
    pub before: String,
    pub after: String,
}

/// What a restart finds and does, in the order in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RestartAction {
    SourceResends,
    CallerRetries,
    DuplicateDetected,
    Resumed,
    Abandoned,
    SentAsPossibleDuplicate,
    ResentAsDuplicate,
    StoredForCaller,
}

impl RestartAction {
    fn description(self) -> &'static str {
        match self {
            Self::SourceResends => "not accepted: the source sends it again",
            Self::CallerRetries => "not accepted: the caller asks again",
            Self::DuplicateDetected => "the source sends it again, and it is recognised",
            Self::Resumed => "taken up again",
            Self::Abandoned => "not tried again: the user is told to check",
            Self::SentAsPossibleDuplicate => "the message is sent, marked as a possible duplicate",
            Self::ResentAsDuplicate => "the message is sent a second time, marked",
            Self::StoredForCaller => "the caller is gone: the text is kept for when it asks again",
        }
    }
}

/// What the restart after the first death did, which came at this commit.
///
/// Whether a source had heard of an acceptance is told only of the last one and where it died of it: later commits do not
/// wait for the source to hear.
pub fn describe_restart(kind: &TurnKind, commit: &str, report: &TrialReport) -> String {
    let Some(death) = report.deaths.first() else { return "not killed".to_owned() };
    let newest = kind.messages.iter().rfind(|said| death.offered.contains(&said.id)).map(|said| said.id.as_str());
    let just_accepted = newest.filter(|_| commit.contains("accept"));
    let mut does = BTreeSet::new();
    for said in kind.messages.iter().filter(|said| death.offered.contains(&said.id)) {
        let id = said.id.as_str();
        let is_told = if said.is_from_caller() { death.answered.contains(id) } else { death.acknowledged.contains(id) };
        match (death.events.contains_key(id), said.is_from_caller()) {
            (false, false) => drop(does.insert(RestartAction::SourceResends)),
            (false, true) => drop(does.insert(RestartAction::CallerRetries)),
            (true, false) if !is_told && just_accepted == Some(id) => {
                does.insert(RestartAction::DuplicateDetected);
            }
            (true, true) if !is_told => drop(does.insert(RestartAction::StoredForCaller)),
            _ => {}
        }
        if death.in_flight_event(id).is_some() {
            let outcome = report.end.events.get(id).and_then(|record| record.outcome.as_ref());
            let given_up = outcome.is_some_and(|(outcome, _)| is_given_up(outcome));
            does.insert(if given_up { RestartAction::Abandoned } else { RestartAction::Resumed });
        }
        let waits = |status: &OutboxStatus| matches!(status, OutboxStatus::Waiting { .. });
        let rows = death.outbox_rows.get(id).into_iter().flatten().filter(|row| waits(&row.status));
        for row in rows.filter(|_| !said.is_from_caller()) {
            let sent = report.platform.sent[..death.sent].iter().any(|sent| sent.message == row.message);
            does.insert(if sent { RestartAction::ResentAsDuplicate } else { RestartAction::SentAsPossibleDuplicate });
        }
    }
    let words: Vec<&str> = does.into_iter().map(RestartAction::description).collect();
    if words.is_empty() { "nothing is left to do".to_owned() } else { words.join("; ") }
}

/// What a commit is for, in words.
fn describe_commit(label: &str) -> &'static str {
    match label {
        "anchor+accept+lease" | "accept+lease" => "the message is accepted",
        "accept+settle" => "the message is accepted, and let go",
        "open-run+take-in" => "the run, the message and what the model is asked are on record",
        "open-run" => "the run is on record, and what it is about to do",
        "take-in" => "a message that came meanwhile is taken into the run",
        "tool-call" => "the tool calls of a step are on record",
        "tool-result" => "what a tool answered is on record",
        "tool-call+tool-result" => "what was looked up and what the model is asked next are on record",
        "tool-call+tool-result+take-in" => "what was looked up and a message that came meanwhile are on record",
        "tool-result+anchor" => "what the last tool answered and the new anchor are on record",
        "open-run+keep" | "keep" => "what is kept at once is on record, with the entry that tells of it",
        "open-run+artifact" => "an artifact is on record, with its content",
        "anchor" => "the new anchor is on record",
        "entries" => "what the model is asked next is on record",
        "delivery" => "it is on record that the message was sent",
        label if label.contains("keep") && label.contains("settle") => {
            "what the runner wants kept, the outcome and the message are on record"
        }
        label if label.contains("artifact") && label.contains("settle") => {
            "the artifact, the outcome and the message are on record"
        }
        label if label.contains("settle") && label.contains("enqueue") => "the outcome and the message are on record",
        label if label.contains("settle") => "the outcome is on record",
        _ => "something else is on record",
    }
}

/// The section of a kind of turn.
pub fn render_section(kind: &TurnKind, rows: &[CrashTableRow]) -> String {
    let mut text = format!("### {}\n\n| commit | killed before it | killed after it |\n|---|---|---|\n", kind.title);
    for row in rows {
        let label = row.commit.split('#').next().unwrap_or_default();
        writeln!(text, "| {} (`{label}`) | {} | {} |", describe_commit(label), row.before, row.after)
            .expect("a string");
    }
    text.push('\n');
    text
}

/// Compares the table with the one in the documentation, or writes it there when `UPDATE_GUARANTEES` is set.
pub fn compare_with_docs(table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guarantees.md");
    let page = std::fs::read_to_string(&path).expect("docs/guarantees.md");
    let (before, rest) = page.split_once(TABLE_BEGIN_MARK).expect("the beginning of the table");
    let (documented, after) = rest.split_once(TABLE_END_MARK).expect("the end of the table");
    if std::env::var_os("UPDATE_GUARANTEES").is_some() {
        let page = format!("{before}{TABLE_BEGIN_MARK}\n{table}{TABLE_END_MARK}{after}");
        return std::fs::write(&path, page).expect("docs/guarantees.md can be written");
    }
    assert!(
        documented.trim() == table.trim(),
        "docs/guarantees.md is not what was measured; UPDATE_GUARANTEES=1 writes it anew:\n{table}"
    );
}
