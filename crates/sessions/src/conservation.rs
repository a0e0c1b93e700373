//! Conservation check: accepted = outcomes + in flight. No accepted event is lost, and none is settled twice.
//!
//! Accepted events are read from the tapes; settled events and events in flight are each read from rows of their own.
//! The three sets are compared by the identity of each event, never by subtraction.

use std::collections::{BTreeMap, BTreeSet};

use capstan_protocol::{EntryId, EventKey, SessionId, TapeName, WorkspaceId};
use capstan_tape::{
    Entry, EntryKind, EventAcceptance, StoreError, TapeEventKind, TapeRecord, TapeRepository, TapeSlice,
};
use serde::Serialize;

/// Page size for reading entries.
const ACCEPTED_PAGE_SIZE: usize = 10_000;

/// An event and the tape it is recorded on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EventOnTape {
    /// The tape.
    pub tape: TapeName,
    /// The event.
    #[serde(flatten)]
    pub event: EventKey,
}

/// The three sets of events that are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventLedger {
    /// One element for each entry that records an accepted event.
    pub accepted: Vec<EventOnTape>,
    /// Events that have an outcome.
    pub outcomes: BTreeSet<EventOnTape>,
    /// Events that are in flight.
    pub in_flight: BTreeSet<EventOnTape>,
}

/// An event that is recorded more often than it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SurplusEvent {
    /// The event.
    #[serde(flatten)]
    pub event: EventOnTape,
    /// The kind of surplus.
    pub why: SurplusReason,
}

/// Kind of surplus of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SurplusReason {
    /// The event has an outcome and is in flight.
    OutcomeAndInFlight,
    /// The event has an outcome but no entry on its tape.
    OutcomeWithoutEntry,
    /// The event is in flight but has no entry on its tape.
    InFlightWithoutEntry,
    /// The event has more than one entry on its tape.
    AcceptedTwice,
}

/// Differences between the sets of an [`EventLedger`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerDifference {
    /// Events that are on a tape, have no outcome and are not in flight.
    pub missing: Vec<EventOnTape>,
    /// Events that are recorded more often than they should be.
    pub surplus: Vec<SurplusEvent>,
}

impl EventLedger {
    /// All differences, in a fixed order.
    pub fn compare(&self) -> LedgerDifference {
        let mut accepted: BTreeMap<&EventOnTape, usize> = BTreeMap::new();
        for event in &self.accepted {
            *accepted.entry(event).or_default() += 1;
        }
        let is_known = |event: &&EventOnTape| self.outcomes.contains(event) || self.in_flight.contains(event);
        let missing = accepted.keys().filter(|event| !is_known(event)).map(|event| (*event).clone());
        let has_no_entry = |event: &&EventOnTape| !accepted.contains_key(event);
        let surplus_event = |event: &EventOnTape, why| SurplusEvent { event: event.clone(), why };
        let twice = accepted.iter().filter(|(_, count)| **count > 1).map(|(event, _)| *event);
        let both = self.outcomes.intersection(&self.in_flight);
        let mut surplus: Vec<SurplusEvent> =
            both.map(|event| surplus_event(event, SurplusReason::OutcomeAndInFlight)).collect();
        let unrecorded = self.outcomes.iter().filter(has_no_entry);
        surplus.extend(unrecorded.map(|event| surplus_event(event, SurplusReason::OutcomeWithoutEntry)));
        let unrecorded = self.in_flight.iter().filter(has_no_entry);
        surplus.extend(unrecorded.map(|event| surplus_event(event, SurplusReason::InFlightWithoutEntry)));
        surplus.extend(twice.map(|event| surplus_event(event, SurplusReason::AcceptedTwice)));
        surplus.sort();
        LedgerDifference { missing: missing.collect(), surplus }
    }
}

/// Event counts of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionLedger {
    /// The session.
    pub session: SessionId,
    /// Tape of the session.
    pub tape: TapeName,
    /// Workspace of the session.
    pub workspace: Option<WorkspaceId>,
    /// Number of accepted events on its tape.
    pub accepted: usize,
    /// Number of events with an outcome.
    pub outcomes: usize,
    /// Number of events in flight.
    pub in_flight: usize,
}

/// An entry that records an accepted event but cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableEntry {
    /// The tape.
    pub tape: TapeName,
    /// The entry.
    pub entry: EntryId,
}

/// Result of the conservation check: counts, differences and unreadable entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConservationReport {
    /// Number of accepted events on all tapes.
    pub accepted: usize,
    /// Number of events with an outcome.
    pub outcomes: usize,
    /// Number of events in flight.
    pub in_flight: usize,
    /// Events that are on a tape, have no outcome and are not in flight.
    pub missing: Vec<EventOnTape>,
    /// Events that are recorded more often than they should be.
    pub surplus: Vec<SurplusEvent>,
    /// Entries that record an accepted event but cannot be parsed.
    pub unreadable: Vec<UnreadableEntry>,
    /// Number of entries of events that another host accepted, on imported tapes. They are not part of the other
    /// counts.
    pub brought_along: usize,
    /// Counts of every session.
    pub sessions: Vec<SessionLedger>,
}

impl ConservationReport {
    /// Returns true if there are no differences and no unreadable entries.
    pub fn is_balanced(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty() && self.unreadable.is_empty()
    }

    /// Reads and compares all events.
    ///
    /// In a store that other processes write to, the counts need not be from one moment. Events reported as missing or
    /// surplus were so in two reads; an event in normal progress cannot look wrong in both.
    pub async fn check(tapes: &TapeRepository) -> Result<Self, StoreError> {
        let first = Self::read(tapes).await?;
        if first.is_balanced() {
            return Ok(first);
        }
        let mut second = Self::read(tapes).await?;
        second.missing.retain(|event| first.missing.contains(event));
        second.surplus.retain(|event| first.surplus.contains(event));
        Ok(second)
    }

    async fn read(tapes: &TapeRepository) -> Result<Self, StoreError> {
        // The order matters: an event that is settled between the reads is still seen, and its entry was written
        // before its rows.
        let mut ledger = EventLedger::default();
        let mut in_flight = tapes.store().in_flight_events(None);
        while let Some(event) = in_flight.next().await? {
            ledger.in_flight.insert(EventOnTape { tape: event.tape, event: event.key });
        }
        let mut settled = tapes.store().settled_events();
        while let Some(event) = settled.next().await? {
            ledger.outcomes.insert(EventOnTape { tape: event.tape, event: event.key });
        }
        let mut report = Self { outcomes: ledger.outcomes.len(), in_flight: ledger.in_flight.len(), ..Self::default() };
        let (outcome_counts, in_flight_counts) = (count_by_tape(&ledger.outcomes), count_by_tape(&ledger.in_flight));
        let count =
            |by_tape: &BTreeMap<TapeName, usize>, tape: &TapeName| by_tape.get(tape).copied().unwrap_or_default();
        let mut records = tapes.store().tapes();
        while let Some(record) = records.next().await? {
            // Only the tape of a session records events accepted here; a fork without one or an imported tape is a copy.
            let Some(session) = record.session.clone() else { continue };
            let tape_ledger = TapeLedger::read(tapes, &record, &ledger).await?;
            report.sessions.push(SessionLedger {
                session,
                tape: record.name.clone(),
                workspace: record.workspace.clone(),
                accepted: tape_ledger.accepted.len(),
                outcomes: count(&outcome_counts, &record.name),
                in_flight: count(&in_flight_counts, &record.name),
            });
            report.unreadable.extend(tape_ledger.unreadable);
            report.brought_along += tape_ledger.imported;
            ledger.accepted.extend(tape_ledger.accepted);
        }
        report.accepted = ledger.accepted.len();
        let LedgerDifference { missing, surplus } = ledger.compare();
        Ok(Self { missing, surplus, ..report })
    }
}

fn count_by_tape(events: &BTreeSet<EventOnTape>) -> BTreeMap<TapeName, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.tape.clone()).or_default() += 1;
    }
    counts
}

/// Accepted events of one tape.
#[derive(Default)]
struct TapeLedger {
    accepted: Vec<EventOnTape>,
    unreadable: Vec<UnreadableEntry>,
    imported: usize,
}

impl TapeLedger {
    async fn read(tapes: &TapeRepository, record: &TapeRecord, rows: &EventLedger) -> Result<Self, StoreError> {
        let mut ledger = Self::default();
        let mut has_local_event = false;
        let mut leading = Vec::new();
        for entry in read_accepted_entries(tapes, record).await? {
            let Some(event) = parse_event_key(&entry) else {
                ledger.unreadable.push(UnreadableEntry { tape: record.name.clone(), entry: entry.id });
                continue;
            };
            let event = EventOnTape { tape: record.name.clone(), event };
            let has_row = rows.outcomes.contains(&event) || rows.in_flight.contains(&event);
            if !has_row {
                match tapes.store().inbox_record(&event.event).await? {
                    Some(accepted) if accepted.tape == event.tape => {}
                    // A copy of an entry of a fork, on which the event was accepted.
                    Some(accepted) if tapes.is_merged_into(&accepted.tape, &event.tape).await? => continue,
                    _ if has_local_event => {}
                    _ => {
                        leading.push(event);
                        continue;
                    }
                }
            }
            has_local_event = true;
            ledger.accepted.push(event);
        }
        // A tape can only be imported as a whole, before its session writes to it: imported entries are the leading
        // ones.
        if has_local_event {
            ledger.imported = leading.len();
        } else {
            ledger.accepted = leading;
        }
        Ok(ledger)
    }
}

/// Entries of all generations that record an accepted event, in order. The entries of a fork's parent are not among them.
async fn read_accepted_entries(tapes: &TapeRepository, record: &TapeRecord) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    let own_after = record.fork.as_ref().map(|fork| fork.position);
    for generation in 1..=record.generation {
        // An external tape store may have more entries by now than this record covers.
        let mut slice = TapeSlice {
            after: own_after,
            up_to: Some(record.head),
            kinds: vec![EntryKind::Event],
            limit: Some(ACCEPTED_PAGE_SIZE),
            ..TapeSlice::default()
        };
        loop {
            let page = tapes.read_generation(&record.name, generation, &slice).await?;
            let Some(last) = page.last().map(|entry| entry.id) else { break };
            slice.after = Some(last);
            entries.extend(page.into_iter().filter(|entry| entry.event_kind() == Some(TapeEventKind::EventAccepted)));
        }
    }
    Ok(entries)
}

fn parse_event_key(entry: &Entry) -> Option<EventKey> {
    let accepted = EventAcceptance::from_entry(entry)?;
    Some(EventKey::from(&*accepted.event))
}

#[cfg(test)]
#[path = "conservation_tests.rs"]
mod tests;
