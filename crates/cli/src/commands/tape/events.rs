//! `capstan tape events`.

use capstan_protocol::EventKey;
use capstan_tape::{EventLogRecord, OutboxRecord, OutboxStatus, TapeSlice};

use super::source::TapeSource;
use super::{MAX_ENTRY_LINE_CHARS, print_lines, summarize_entry};
use crate::CommandError;
use crate::commands::replace_control_chars;

/// Prints the event log of a tape, a line for each fact; with a limit, the newest.
pub(super) async fn print_events(source: TapeSource, limit: Option<usize>, json: bool) -> Result<(), CommandError> {
    let log = source.tapes.event_log(&source.tape, &TapeSlice::all()).await?;
    let skipped = log.len().saturating_sub(limit.unwrap_or(usize::MAX));
    let shown = log.iter().skip(skipped);
    if json {
        return print_lines(shown.map(|logged| logged.to_json().to_string()));
    }
    print_lines(shown.map(|logged| replace_control_chars(&format_event_row(logged))))
}

fn format_event_row(logged: &EventLogRecord) -> String {
    let (entry, date) = match logged {
        EventLogRecord::Inbound { entry, .. } | EventLogRecord::Activity(entry) => {
            (entry.id.to_string(), entry.date.as_str().to_owned())
        }
        EventLogRecord::Delivery(row) => (String::new(), row.staged_at.to_string()),
        EventLogRecord::Outcome { .. } => Default::default(),
    };
    let text = match logged {
        EventLogRecord::Inbound { event, .. } => {
            format!("{}: {}", format_event_key(&EventKey::from(&**event)), event.input.plain_text())
        }
        EventLogRecord::Outcome { event, outcome, .. } => {
            format!("{}: {}", format_event_key(event), outcome.as_ref().map_or("in flight", |outcome| outcome.name()))
        }
        EventLogRecord::Delivery(row) => format_delivery(row),
        EventLogRecord::Activity(entry) => summarize_entry(entry),
    };
    let mut shown: String = text.chars().take(MAX_ENTRY_LINE_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{entry:>5}  {date:32}  {:11} {shown}", logged.name())
}

fn format_event_key(event: &EventKey) -> String {
    format!("{} of {}", event.event_id, event.source)
}

/// What became of a message, and what it says.
fn format_delivery(row: &OutboxRecord) -> String {
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
