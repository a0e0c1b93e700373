//! X3: what must hold of the messages that were sent.

use std::collections::BTreeMap;

use capstan::protocol::{OutboundMessage, Outcome};
use capstan::tape::{OutboxRecord, OutboxStatus};

use crate::script::{ScriptedMessage, TrialScript};
use crate::trial::TrialReport;

/// Everything that does not hold; nothing if all is well.
pub fn find_problems(script: &TrialScript, report: &TrialReport) -> Vec<String> {
    let mut found = Vec::new();
    for said in &script.messages {
        check_outbox_rows(said, report, &mut found);
        if said.is_from_caller() {
            check_caller_reply(said, report, &mut found);
        }
    }
    let rows = script.messages.iter().filter(|said| !said.is_from_caller());
    let rows: Vec<&OutboxRecord> = rows.filter_map(|said| report.end.outbox_rows.get(&said.id)).flatten().collect();
    check_sent(&rows, report, &mut found);
    check_send_order(&rows, report, &mut found);
    found
}

/// What an outcome says was told to the user was put into the outbox with it, once.
fn check_outbox_rows(said: &ScriptedMessage, report: &TrialReport, found: &mut Vec<String>) {
    let rows = report.end.outbox_rows.get(&said.id).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = rows.iter().map(|row| row.message.content.text()).collect();
    let expected = match report.end.events.get(&said.id).and_then(|record| record.outcome.as_ref()) {
        Some((Outcome::Replied { text }, _)) => Some(text),
        Some((Outcome::Failed { notice, .. }, _)) => Some(notice),
        _ => None,
    };
    let is_folded = |notice: &String| texts.is_empty() && has_shared_notice(said, notice, report);
    if let Some(expected) = expected
        && texts != [expected.as_str()]
        && !is_folded(expected)
    {
        found.push(format!("{} ended with {expected:?}, and its messages are {texts:?}", said.id));
    }
}

/// Events of one run that are given up together have one notice.
fn has_shared_notice(said: &ScriptedMessage, notice: &str, report: &TrialReport) -> bool {
    let run = |id: &str| report.end.events.get(id).and_then(|record| record.outcome.as_ref()?.1.clone());
    let own = run(&said.id);
    own.is_some()
        && report.end.outbox_rows.iter().any(|(id, rows)| {
            *id != said.id && run(id) == own && rows.iter().any(|row| row.message.content.text() == notice)
        })
}

/// Every message was sent at least once, and every time but the first it says that it may have been sent before.
fn check_sent(rows: &[&OutboxRecord], report: &TrialReport, found: &mut Vec<String>) {
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
            found.push(format!("{message:?} was sent {unmarked} times without a mark, and wanted {wanted} times"));
        }
    }
    for (message, rows) in wanted {
        let marks = sent.get(&message).map(Vec::as_slice).unwrap_or_default();
        if marks.len() < rows.len() {
            found.push(format!("{message:?} is wanted {} times, and was sent {} times", rows.len(), marks.len()));
        }
        let is_marked = rows.iter().any(|status| **status == OutboxStatus::Sent { possible_duplicate: true });
        if marks.len() > rows.len() && !is_marked {
            found.push(format!("{message:?} was sent {} times, which is not on record: {rows:?}", marks.len()));
        }
        if rows.iter().any(|status| !matches!(status, OutboxStatus::Sent { .. })) {
            found.push(format!("{message:?} was not sent: {rows:?}"));
        }
    }
}

/// Every process sends the messages of a chat in the order in which they were put into the outbox.
fn check_send_order(rows: &[&OutboxRecord], report: &TrialReport, found: &mut Vec<String>) {
    let mut last: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for sent in &report.platform.sent {
        let message = chat_and_text(&sent.message);
        let row =
            rows.iter().find(|row| chat_and_text(&row.message) == message).map(|row| row.id.0).unwrap_or_default();
        let before = last.insert((sent.process, message.0.clone()), row).unwrap_or_default();
        if before > row {
            found.push(format!("{message:?} was sent after what was said later"));
        }
    }
}

/// A caller gets what became of its event, from the process it called; what it cannot be told is kept.
fn check_caller_reply(said: &ScriptedMessage, report: &TrialReport, found: &mut Vec<String>) {
    let id = said.id.as_str();
    let record = report.end.events.get(id).and_then(|record| record.outcome.as_ref());
    let Some((outcome, _)) = record else { return };
    let answers: Vec<_> = report.platform.answers.iter().filter(|answer| answer.event == id).collect();
    let text = match outcome {
        Outcome::Replied { text } | Outcome::Failed { notice: text, .. } => text.as_str(),
        _ => "",
    };
    for answer in &answers {
        if answer.outcome != *outcome || answer.texts != [text] {
            found.push(format!("{id} ended as {outcome:?}, but its caller was told {answer:?}"));
        }
    }
    let was_accepted = |process: u32| process >= 2 && report.deaths[process as usize - 2].events.contains_key(id);
    for answer in answers {
        if answer.duplicate != was_accepted(answer.process) {
            found.push(format!("{id} was answered as if it had been asked by another: {answer:?}"));
        }
    }
    for row in report.end.outbox_rows.get(id).into_iter().flatten() {
        let died_before = report.deaths.iter().any(|death| death.events.contains_key(id));
        match &row.status {
            OutboxStatus::Sent { .. } => {}
            OutboxStatus::Undelivered { reason } if died_before && reason == "the caller is gone" => {}
            status => found.push(format!("the answer to {id} is {status:?}")),
        }
    }
}

fn chat_and_text(message: &OutboundMessage) -> (String, String) {
    (message.chat_id.to_string(), message.content.text())
}
