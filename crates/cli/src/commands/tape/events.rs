//! `capstan tape events`.

use capstan_protocol::EventKey;
use capstan_tape::{EventLogRow, OutboxRecord, OutboxStatus, TapeSlice};

use super::source::TapeSource;
use super::{print_json_lines, print_lines, summarize_entry};
use crate::CommandError;
use crate::commands::{replace_control_chars, truncate_line};

/// Prints the event log of a tape, a line for each record; with a limit, the newest.
pub(super) async fn print_events(source: TapeSource, limit: Option<usize>, json: bool) -> Result<(), CommandError> {
    let log = source.tapes.event_log(&source.tape, &TapeSlice::all()).await?;
    let skipped = log.len().saturating_sub(limit.unwrap_or(usize::MAX));
    let records = log.iter().skip(skipped);
    if json {
        return print_json_lines(records.map(|record| record.to_json().to_string()));
    }
    print_lines(records.map(|record| replace_control_chars(&format_event_row(record))))
}

fn format_event_row(record: &EventLogRow) -> String {
    let (entry, date) = match record {
        EventLogRow::Inbound { entry, .. } | EventLogRow::Activity(entry) => {
            (entry.id.to_string(), entry.date.as_str().to_owned())
        }
        EventLogRow::Delivery(row) => (String::new(), row.staged_at.to_string()),
        EventLogRow::Outcome { .. } => Default::default(),
    };
    let text = match record {
        EventLogRow::Inbound { event, .. } => {
            format!("{}: {}", format_event_key(&EventKey::from(&**event)), event.input.plain_text())
        }
        EventLogRow::Outcome { event, outcome, .. } => {
            format!("{}: {}", format_event_key(event), outcome.as_ref().map_or("in flight", |outcome| outcome.name()))
        }
        EventLogRow::Delivery(row) => format_delivery(row),
        EventLogRow::Activity(entry) => summarize_entry(entry),
    };
    format!("{entry:>5}  {date:32}  {:11} {}", record.name(), truncate_line(&text))
}

fn format_event_key(event: &EventKey) -> String {
    format!("{} from {}", event.event_id, event.source)
}

/// Status and text of a message.
fn format_delivery(row: &OutboxRecord) -> String {
    let status = match &row.status {
        OutboxStatus::Waiting { attempts: 0, .. } => "waiting".to_owned(),
        OutboxStatus::Waiting { attempts, reason, .. } => {
            format!("waiting after {attempts} attempts ({})", reason.as_deref().unwrap_or("unknown"))
        }
        OutboxStatus::Sent { possible_duplicate: false } => "sent".to_owned(),
        OutboxStatus::Sent { possible_duplicate: true } => "sent, possible duplicate".to_owned(),
        OutboxStatus::Held { reason, .. } => format!("held ({reason})"),
        OutboxStatus::Undelivered { reason } | OutboxStatus::Acknowledged { reason } => {
            format!("undelivered ({reason})")
        }
    };
    let message = &row.message;
    format!("{status} to {} {}: {}", message.channel, message.chat_id, message.content.text_with_file_names())
}
