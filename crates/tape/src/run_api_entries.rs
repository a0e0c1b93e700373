//! Conversion of entries and event log items to the types of the run API.

use capstan_protocol::run_api::{EventLogItem, TapeEntry};

use crate::{Entry, EventLogRow};

impl From<Entry> for TapeEntry {
    fn from(entry: Entry) -> Self {
        let Entry { id, kind, payload, meta, date, extra } = entry;
        Self { id, kind: kind.into(), payload, meta, date: date.as_str().to_owned(), extra }
    }
}

impl From<EventLogRow> for EventLogItem {
    fn from(record: EventLogRow) -> Self {
        match record {
            EventLogRow::Inbound { entry, event, .. } => Self::Inbound { entry: entry.into(), event },
            EventLogRow::Outcome { event, outcome, run_id } => Self::Outcome { event, outcome, run_id },
            EventLogRow::Delivery(row) => Self::Delivery {
                row: row.id.0,
                staged_at: row.staged_at,
                event: row.event,
                message: Box::new(row.message),
                delivery: row.status,
            },
            EventLogRow::Activity(entry) => Self::Activity { entry: entry.into() },
        }
    }
}
