//! Checks of X3: deliveries after a crash.

use std::collections::BTreeMap;

use capstan::protocol::{OutboundMessage, Outcome};
use capstan::tape::{OutboxRecord, OutboxStatus};

use crate::script::{ScriptedMessage, TrialScript};
use crate::trial::TrialReport;

/// Returns all violations.
pub fn find_problems(script: &TrialScript, report: &TrialReport) -> Vec<String> {
    let mut problems = Vec::new();
    for message in &script.messages {
        check_outbox_rows(message, report, &mut problems);
        if message.is_from_caller() {
            check_caller_reply(message, report, &mut problems);
        }
    }
    let rows = script.messages.iter().filter(|message| !message.is_from_caller());
    let rows: Vec<&OutboxRecord> =
        rows.filter_map(|message| report.end.outbox_rows.get(&message.id)).flatten().collect();
    check_sent(&rows, report, &mut problems);
    check_send_order(&rows, report, &mut problems);
    problems
}

/// The text of an outcome was enqueued with it, exactly once.
fn check_outbox_rows(message: &ScriptedMessage, report: &TrialReport, problems: &mut Vec<String>) {
    let rows = report.end.outbox_rows.get(&message.id).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = rows.iter().map(|row| row.message.content.text()).collect();
    let expected = match report.end.events.get(&message.id).and_then(|record| record.outcome.as_ref()) {
        Some((Outcome::Replied { text }, _)) => Some(text),
        Some((Outcome::Failed { notice, .. }, _)) => Some(notice),
        _ => None,
    };
    let is_folded = |notice: &String| texts.is_empty() && has_shared_notice(message, notice, report);
    if let Some(expected) = expected
        && texts != [expected.as_str()]
        && !is_folded(expected)
    {
        problems.push(format!("{} ended with {expected:?}, and its messages are {texts:?}", message.id));
    }
}

/// Events of one run that are abandoned together share one notice.
fn has_shared_notice(message: &ScriptedMessage, notice: &str, report: &TrialReport) -> bool {
    let run = |id: &str| report.end.events.get(id).and_then(|record| record.outcome.as_ref()?.1.clone());
    let own = run(&message.id);
    own.is_some()
        && report.end.outbox_rows.iter().any(|(id, rows)| {
            *id != message.id && run(id) == own && rows.iter().any(|row| row.message.content.text() == notice)
        })
}

/// Every message was sent at least once, and every repetition is marked as a possible duplicate.
fn check_sent(rows: &[&OutboxRecord], report: &TrialReport, problems: &mut Vec<String>) {
    let mut wanted: BTreeMap<(String, String), Vec<&OutboxStatus>> = BTreeMap::new();
    for row in rows {
        wanted.entry(chat_and_text(&row.message)).or_default().push(&row.status);
    }
    let mut sent: BTreeMap<(String, String), Vec<bool>> = BTreeMap::new();
    for message in report.platform.sent.iter().map(|sent| &sent.message) {
        sent.entry(chat_and_text(message)).or_default().push(message.is_possible_duplicate());
    }
    for (message, marks) in &sent {
        let wanted = wanted.get(message).map(Vec::len).unwrap_or_default();
        let unmarked = marks.iter().filter(|mark| !**mark).count();
        if unmarked > wanted || wanted == 0 {
            problems.push(format!("{message:?} was sent {unmarked} times without a mark, but enqueued {wanted} times"));
        }
    }
    for (message, rows) in wanted {
        let marks = sent.get(&message).map(Vec::as_slice).unwrap_or_default();
        if marks.len() < rows.len() {
            problems.push(format!("{message:?} was enqueued {} times, but sent {} times", rows.len(), marks.len()));
        }
        let is_marked = rows.iter().any(|status| **status == OutboxStatus::Sent { possible_duplicate: true });
        if marks.len() > rows.len() && !is_marked {
            problems.push(format!("{message:?} was sent {} times, which is not recorded: {rows:?}", marks.len()));
        }
        if rows.iter().any(|status| !matches!(status, OutboxStatus::Sent { .. })) {
            problems.push(format!("{message:?} was not sent: {rows:?}"));
        }
    }
}

/// Every process sends the messages of a chat in the order of the outbox.
fn check_send_order(rows: &[&OutboxRecord], report: &TrialReport, problems: &mut Vec<String>) {
    let mut last: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for sent in &report.platform.sent {
        let message = chat_and_text(&sent.message);
        let row =
            rows.iter().find(|row| chat_and_text(&row.message) == message).map(|row| row.id.0).unwrap_or_default();
        let before = last.insert((sent.process, message.0.clone()), row).unwrap_or_default();
        if before > row {
            problems.push(format!("{message:?} was sent after a later message"));
        }
    }
}

/// A caller gets the outcome of its event from the process it called; an undeliverable reply is stored.
fn check_caller_reply(message: &ScriptedMessage, report: &TrialReport, problems: &mut Vec<String>) {
    let id = message.id.as_str();
    let record = report.end.events.get(id).and_then(|record| record.outcome.as_ref());
    let Some((outcome, _)) = record else { return };
    let answers: Vec<_> = report.platform.answers.iter().filter(|answer| answer.event == id).collect();
    let text = match outcome {
        Outcome::Replied { text } | Outcome::Failed { notice: text, .. } => text.as_str(),
        _ => "",
    };
    for answer in &answers {
        if answer.outcome != *outcome || answer.texts != [text] {
            problems.push(format!("{id} ended as {outcome:?}, but its caller got {answer:?}"));
        }
    }
    let was_accepted = |process: u32| process >= 2 && report.deaths[process as usize - 2].events.contains_key(id);
    for answer in answers {
        if answer.duplicate != was_accepted(answer.process) {
            problems.push(format!("{id} has a wrong duplicate mark in its reply: {answer:?}"));
        }
    }
    for row in report.end.outbox_rows.get(id).into_iter().flatten() {
        let died_before = report.deaths.iter().any(|death| death.events.contains_key(id));
        match &row.status {
            OutboxStatus::Sent { .. } => {}
            OutboxStatus::Undelivered { reason } if died_before && reason == "the caller has disconnected" => {}
            status => problems.push(format!("the answer to {id} is {status:?}")),
        }
    }
}

fn chat_and_text(message: &OutboundMessage) -> (String, String) {
    (message.chat_id.to_string(), message.content.text())
}
