//! The event log of a tape: what came in, what was done about it and what became of it, in one list.

use std::collections::HashMap;

use capstan_protocol::{Event, EventKey, Outcome, RunId, TapeName};
use serde_json::{Value, json};

use crate::{
    Entry, EntryKind, EventAcceptance, OutboxRecord, StoreError, StoredBinding, TapeEventKind, TapeRepository,
    TapeSlice,
};

/// A fact of the event log: an entry of the tape, or a row beside it that belongs to one of its events.
#[derive(Debug, Clone, PartialEq)]
pub enum EventLogRecord {
    /// An event was accepted.
    Inbound {
        /// The entry that tells of it.
        entry: Entry,
        /// The event.
        event: Box<Event>,
        /// The binding that came with it, if one did.
        binding: Option<StoredBinding>,
    },
    /// How an event ended, if it has.
    Outcome {
        /// The event.
        event: EventKey,
        /// Its outcome; none while it is in flight.
        outcome: Option<Outcome>,
        /// The run that ended it.
        run_id: Option<RunId>,
    },
    /// A message that answers an event, and its fate so far.
    Delivery(Box<OutboxRecord>),
    /// Tool calls and their results, commands, actions on the platform, handoffs, what was dispatched, and errors.
    Activity(Entry),
}

impl EventLogRecord {
    /// What kind of fact it is.
    pub fn name(&self) -> &str {
        match self {
            Self::Inbound { .. } => "inbound",
            Self::Outcome { .. } => "outcome",
            Self::Delivery(_) => "delivery",
            Self::Activity(entry) => match (&entry.kind, entry.name()) {
                (EntryKind::Event, Some(name)) => name,
                (kind, _) => kind.as_str(),
            },
        }
    }

    /// The fact as one object.
    pub fn to_json(&self) -> Value {
        let of_entry = |entry: &Entry| json!({ "fact": self.name(), "entry": entry.id, "date": entry.date.as_str() });
        match self {
            Self::Inbound { entry, event, binding } => {
                let mut shown = of_entry(entry);
                shown["event"] = json!(event);
                if let Some(binding) = binding {
                    shown["binding"] = json!(binding);
                }
                shown
            }
            Self::Outcome { event, outcome, run_id } => {
                json!({ "fact": self.name(), "event": event, "outcome": outcome, "run_id": run_id })
            }
            Self::Delivery(row) => json!({
                "fact": self.name(), "row": row.id.0, "date": row.staged_at, "event": row.event, "message": row.message,
                "delivery": row.status,
            }),
            Self::Activity(entry) => {
                let mut shown = of_entry(entry);
                shown["run_id"] = json!(entry.run_id());
                shown["payload"] = entry.payload.clone();
                shown
            }
        }
    }

    /// The fact that an entry is, if it is one of the log.
    fn from_entry(entry: Entry) -> Option<Self> {
        match (&entry.kind, entry.event_kind()) {
            (_, Some(TapeEventKind::EventAccepted)) => {
                let EventAcceptance { event, binding, .. } = EventAcceptance::from_entry(&entry)?;
                Some(Self::Inbound { entry, event, binding })
            }
            (EntryKind::Event, kind) => kind.filter(|kind| kind.is_logged()).map(|_| Self::Activity(entry)),
            (EntryKind::ToolCall | EntryKind::ToolResult | EntryKind::System | EntryKind::Error, _) => {
                Some(Self::Activity(entry))
            }
            (EntryKind::Message | EntryKind::Anchor | EntryKind::Other(_), _) => None,
        }
    }
}

impl TapeRepository {
    /// The event log of a tape, in order: outcomes and deliveries stand after the last entry of the run that ended their
    /// event. Of an event that another host accepted, only what stands on the tape is known.
    pub async fn event_log(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<EventLogRecord>, StoreError> {
        let entries = self.read(tape, slice).await?;
        let ends = entries.iter().enumerate().filter_map(|(at, entry)| Some((entry.run_id()?.to_owned(), at)));
        let ends: HashMap<String, usize> = ends.collect();
        let mut log = Vec::new();
        for (at, logged) in entries.into_iter().map(EventLogRecord::from_entry).enumerate() {
            let key = match &logged {
                Some(EventLogRecord::Inbound { event, .. }) => Some(EventKey::from(&**event)),
                _ => None,
            };
            log.extend(logged.map(|logged| (at, logged)));
            let Some(key) = key else { continue };
            let Some(accepted) = self.store().inbox_record(&key).await? else { continue };
            let (outcome, run_id) = accepted.outcome.unzip();
            let run_id = run_id.flatten();
            let at = run_id.as_ref().and_then(|run| ends.get(run.as_str())).copied().unwrap_or(at);
            let rows = self.store().outbox_records(&key).collect().await?;
            log.push((at, EventLogRecord::Outcome { event: key, outcome, run_id }));
            log.extend(rows.into_iter().map(|row| (at, EventLogRecord::Delivery(Box::new(row)))));
        }
        // What follows an entry was put in after it.
        log.sort_by_key(|(at, logged)| {
            (*at, matches!(logged, EventLogRecord::Outcome { .. } | EventLogRecord::Delivery(_)))
        });
        Ok(log.into_iter().map(|(_, logged)| logged).collect())
    }
}
