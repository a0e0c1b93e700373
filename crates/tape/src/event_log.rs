//! Event log of a tape: accepted events, activities, outcomes and deliveries in one list.

use std::collections::HashMap;

use capstan_protocol::{Event, EventKey, Outcome, RunId, TapeName};
use serde_json::{Value, json};

use crate::{
    Entry, EntryKind, EventAcceptance, OutboxRecord, StoreError, StoredBinding, TapeEventKind, TapeRepository,
    TapeSlice,
};

/// Item of the event log: an entry of the tape, or a row of another table that belongs to one of its events.
#[derive(Debug, Clone, PartialEq)]
pub enum EventLogRow {
    /// An event was accepted.
    Inbound {
        /// Entry that records the acceptance.
        entry: Entry,
        /// The event.
        event: Box<Event>,
        /// Binding that came with the event, if any.
        binding: Option<StoredBinding>,
    },
    /// Outcome of an event.
    Outcome {
        /// The event.
        event: EventKey,
        /// The outcome; `None` while the event is in flight.
        outcome: Option<Outcome>,
        /// Run that settled the event.
        run_id: Option<RunId>,
    },
    /// Message of the event's turn, and its delivery status.
    Delivery(Box<OutboxRecord>),
    /// Tool calls and results, commands, platform actions, handoffs, dispatched messages, errors.
    Activity(Entry),
}

impl EventLogRow {
    /// Name of the item; for an activity, the name of its event or its kind.
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

    /// Item as a JSON object.
    pub fn to_json(&self) -> Value {
        let entry_json = |entry: &Entry| json!({ "fact": self.name(), "entry": entry.id, "date": entry.date.as_str() });
        match self {
            Self::Inbound { entry, event, binding } => {
                let mut item = entry_json(entry);
                item["event"] = json!(event);
                if let Some(binding) = binding {
                    item["binding"] = json!(binding);
                }
                item
            }
            Self::Outcome { event, outcome, run_id } => {
                json!({ "fact": self.name(), "event": event, "outcome": outcome, "run_id": run_id })
            }
            Self::Delivery(row) => json!({
                "fact": self.name(), "row": row.id.0, "date": row.staged_at, "event": row.event, "message": row.message,
                "delivery": row.status,
            }),
            Self::Activity(entry) => {
                let mut item = entry_json(entry);
                item["run_id"] = json!(entry.run_id());
                item["payload"] = entry.payload.clone();
                item
            }
        }
    }

    /// Item for an entry, if the log shows it.
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
    /// Event log of a tape, in order. Outcomes and deliveries follow the last entry of the run that settled their
    /// event. Events that another host accepted have neither.
    pub async fn event_log(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<EventLogRow>, StoreError> {
        let entries = self.read(tape, slice).await?;
        let ends = entries.iter().enumerate().filter_map(|(at, entry)| Some((entry.run_id()?.to_owned(), at)));
        let ends: HashMap<String, usize> = ends.collect();
        let mut log = Vec::new();
        for (at, item) in entries.into_iter().map(EventLogRow::from_entry).enumerate() {
            let key = match &item {
                Some(EventLogRow::Inbound { event, .. }) => Some(EventKey::from(&**event)),
                _ => None,
            };
            log.extend(item.map(|item| (at, item)));
            let Some(key) = key else { continue };
            let Some(accepted) = self.store().inbox_record(&key).await? else { continue };
            let (outcome, run_id) = accepted.outcome.unzip();
            let run_id = run_id.flatten();
            let at = run_id.as_ref().and_then(|run| ends.get(run.as_str())).copied().unwrap_or(at);
            let rows = self.store().outbox_records(&key).collect().await?;
            log.push((at, EventLogRow::Outcome { event: key, outcome, run_id }));
            log.extend(rows.into_iter().map(|row| (at, EventLogRow::Delivery(Box::new(row)))));
        }
        // The sort is stable, so items at the same position keep their order.
        log.sort_by_key(|(at, item)| (*at, matches!(item, EventLogRow::Outcome { .. } | EventLogRow::Delivery(_))));
        Ok(log.into_iter().map(|(_, item)| item).collect())
    }
}
