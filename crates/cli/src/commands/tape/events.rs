//! `capstan tape events`.

use capstan_protocol::EventKey;
use capstan_tape::{Logged, OutboxRecord, OutboxStatus, Slice};

use super::source::Source;
use super::{SHOWN_CHARS, print_lines, summary};
use crate::Failure;
use crate::commands::plain;

/// Prints the event log of a tape, a line for each fact; with a limit, the newest.
pub(super) async fn events(source: Source, limit: Option<usize>, json: bool) -> Result<(), Failure> {
    let log = source.tapes.event_log(&source.tape, &Slice::all()).await?;
    let skipped = log.len().saturating_sub(limit.unwrap_or(usize::MAX));
    let shown = log.iter().skip(skipped);
    if json {
        return print_lines(shown.map(|logged| logged.to_json().to_string()));
    }
    print_lines(shown.map(|logged| plain(&line(logged))))
}

fn line(logged: &Logged) -> String {
    let (entry, date) = match logged {
        Logged::Inbound { entry, .. } | Logged::Done(entry) => (entry.id.to_string(), entry.date.as_str().to_owned()),
        Logged::Delivery(row) => (String::new(), row.at.to_string()),
        Logged::Outcome { .. } => Default::default(),
    };
    let text = match logged {
        Logged::Inbound { event, .. } => format!("{}: {}", of(&EventKey::from(&**event)), event.input.plain_text()),
        Logged::Outcome { event, outcome, .. } => {
            format!("{}: {}", of(event), outcome.as_ref().map_or("in flight", |outcome| outcome.name()))
        }
        Logged::Delivery(row) => delivery(row),
        Logged::Done(entry) => summary(entry),
    };
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{entry:>5}  {date:32}  {:11} {shown}", logged.name())
}

fn of(event: &EventKey) -> String {
    format!("{} of {}", event.event_id, event.source)
}

/// What became of a message, and what it says.
fn delivery(row: &OutboxRecord) -> String {
    let became = match &row.status {
        OutboxStatus::Waiting { attempts: 0, .. } => "waits".to_owned(),
        OutboxStatus::Waiting { attempts, reason, .. } => {
            format!("waits after {attempts} attempts ({})", reason.as_deref().unwrap_or("unknown"))
        }
        OutboxStatus::Sent { possible_duplicate: false } => "sent".to_owned(),
        OutboxStatus::Sent { possible_duplicate: true } => "sent, perhaps twice".to_owned(),
        OutboxStatus::Undelivered { reason } | OutboxStatus::Noted { reason } => format!("undelivered ({reason})"),
    };
    let message = &row.message;
    format!("{became} to {} {}: {}", message.channel, message.chat_id, message.content.text())
}
