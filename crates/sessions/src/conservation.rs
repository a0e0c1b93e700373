//! Accepted = outcomes + in flight: whether no accepted event was lost, and none ended twice.
//!
//! What was accepted is counted from the tapes, what ended and what is in flight each from rows of its own. The three
//! are compared by the identity of each event, never by subtraction.

use std::collections::{BTreeMap, BTreeSet};

use capstan_protocol::{EntryId, EventKey, SessionId, TapeName, WorkspaceId};
use capstan_tape::{
    Entry, EntryKind, EventAcceptance, StoreError, TapeEventKind, TapeRecord, TapeRepository, TapeSlice,
};
use serde::Serialize;

/// How many entries are read at once.
const ACCEPTED_PAGE_SIZE: usize = 10_000;

/// An event, and the tape it stands on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EventOnTape {
    /// The tape.
    pub tape: TapeName,
    /// The event.
    #[serde(flatten)]
    pub event: EventKey,
}

/// What is to be compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventLedger {
    /// Every entry that tells of an accepted event.
    pub accepted: Vec<EventOnTape>,
    /// The events that have an outcome.
    pub outcomes: BTreeSet<EventOnTape>,
    /// The events that are in flight.
    pub in_flight: BTreeSet<EventOnTape>,
}

/// An event of which there is more than there should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SurplusEvent {
    /// The event.
    #[serde(flatten)]
    pub standing: EventOnTape,
    /// What there is too much of.
    pub why: SurplusReason,
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SurplusReason {
    /// It has an outcome and is in flight.
    OutcomeAndInFlight,
    /// It has an outcome, and its tape does not tell of it.
    OutcomeWithoutEntry,
    /// It is in flight, and its tape does not tell of it.
    InFlightWithoutEntry,
    /// Its tape tells of it more than once.
    AcceptedTwice,
}

/// What is wrong with books.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerDifference {
    /// Events that stand on a tape, have no outcome and are not in flight.
    pub missing: Vec<EventOnTape>,
    /// Events of which there is more than there should be.
    pub surplus: Vec<SurplusEvent>,
}

impl EventLedger {
    /// Everything in which the books differ, in a fixed order.
    pub fn compare(&self) -> LedgerDifference {
        let mut accepted: BTreeMap<&EventOnTape, usize> = BTreeMap::new();
        for standing in &self.accepted {
            *accepted.entry(standing).or_default() += 1;
        }
        let is_known = |standing: &&EventOnTape| self.outcomes.contains(standing) || self.in_flight.contains(standing);
        let missing = accepted.keys().filter(|standing| !is_known(standing)).map(|standing| (*standing).clone());
        let told = |standing: &&EventOnTape| !accepted.contains_key(standing);
        let surplus = |standing: &EventOnTape, why| SurplusEvent { standing: standing.clone(), why };
        let twice = accepted.iter().filter(|(_, count)| **count > 1).map(|(standing, _)| *standing);
        let both = self.outcomes.intersection(&self.in_flight);
        let mut found: Vec<SurplusEvent> = both.map(|one| surplus(one, SurplusReason::OutcomeAndInFlight)).collect();
        found.extend(self.outcomes.iter().filter(told).map(|one| surplus(one, SurplusReason::OutcomeWithoutEntry)));
        found.extend(self.in_flight.iter().filter(told).map(|one| surplus(one, SurplusReason::InFlightWithoutEntry)));
        found.extend(twice.map(|one| surplus(one, SurplusReason::AcceptedTwice)));
        found.sort();
        LedgerDifference { missing: missing.collect(), surplus: found }
    }
}

/// The books of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionLedger {
    /// The session.
    pub session: SessionId,
    /// Its tape.
    pub tape: TapeName,
    /// Its workspace.
    pub workspace: Option<WorkspaceId>,
    /// How many events its tape tells of.
    pub accepted: usize,
    /// How many of them have an outcome.
    pub outcomes: usize,
    /// How many of them are in flight.
    pub in_flight: usize,
}

/// An entry that tells of an event which cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableEntry {
    /// The tape.
    pub tape: TapeName,
    /// The entry.
    pub entry: EntryId,
}

/// What was accepted, what became of it, and what does not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConservationReport {
    /// How many events the tapes tell of.
    pub accepted: usize,
    /// How many events have an outcome.
    pub outcomes: usize,
    /// How many events are in flight.
    pub in_flight: usize,
    /// Events that stand on a tape, have no outcome and are not in flight.
    pub missing: Vec<EventOnTape>,
    /// Events of which there is more than there should be.
    pub surplus: Vec<SurplusEvent>,
    /// Entries that tell of an event which cannot be read.
    pub unreadable: Vec<UnreadableEntry>,
    /// Entries of events that another host accepted, on tapes that were brought here with them. They count for nothing.
    pub brought_along: usize,
    /// Every session.
    pub sessions: Vec<SessionLedger>,
}

impl ConservationReport {
    /// Whether everything adds up.
    pub fn is_balanced(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty() && self.unreadable.is_empty()
    }

    /// Reads and compares everything.
    ///
    /// Over a store that others write to, the numbers need not be of one moment; but what is named as missing or surplus
    /// was so at two readings, between which no event can look wrong twice by the way it goes.
    pub async fn check(tapes: &TapeRepository) -> Result<Self, StoreError> {
        let first = Self::read(tapes).await?;
        if first.is_balanced() {
            return Ok(first);
        }
        let mut second = Self::read(tapes).await?;
        second.missing.retain(|one| first.missing.contains(one));
        second.surplus.retain(|one| first.surplus.contains(one));
        Ok(second)
    }

    async fn read(tapes: &TapeRepository) -> Result<Self, StoreError> {
        // In this order: an event that goes from in flight to its outcome meanwhile is seen, and its entry was there
        // before its rows.
        let mut books = EventLedger::default();
        let mut in_flight = tapes.store().in_flight_events(None);
        while let Some(event) = in_flight.next().await? {
            books.in_flight.insert(EventOnTape { tape: event.tape, event: event.key });
        }
        let mut settled = tapes.store().settled_events();
        while let Some(event) = settled.next().await? {
            books.outcomes.insert(EventOnTape { tape: event.tape, event: event.key });
        }
        let mut found = Self { outcomes: books.outcomes.len(), in_flight: books.in_flight.len(), ..Self::default() };
        let (settled_of, flying_of) = (count_by_tape(&books.outcomes), count_by_tape(&books.in_flight));
        let count =
            |by_tape: &BTreeMap<TapeName, usize>, tape: &TapeName| by_tape.get(tape).copied().unwrap_or_default();
        let mut records = tapes.store().tapes();
        while let Some(record) = records.next().await? {
            // Only the tape of a session tells of what was accepted here; a fork or an imported tape is a copy.
            let Some(session) = record.session.clone() else { continue };
            let told = TapeLedger::read(tapes, &record, &books).await?;
            found.sessions.push(SessionLedger {
                session,
                tape: record.name.clone(),
                workspace: record.workspace.clone(),
                accepted: told.accepted.len(),
                outcomes: count(&settled_of, &record.name),
                in_flight: count(&flying_of, &record.name),
            });
            found.unreadable.extend(told.unreadable);
            found.brought_along += told.imported;
            books.accepted.extend(told.accepted);
        }
        found.accepted = books.accepted.len();
        let LedgerDifference { missing, surplus } = books.compare();
        Ok(Self { missing, surplus, ..found })
    }
}

fn count_by_tape(events: &BTreeSet<EventOnTape>) -> BTreeMap<TapeName, usize> {
    let mut counts = BTreeMap::new();
    for one in events {
        *counts.entry(one.tape.clone()).or_default() += 1;
    }
    counts
}

/// What one tape tells of.
#[derive(Default)]
struct TapeLedger {
    accepted: Vec<EventOnTape>,
    unreadable: Vec<UnreadableEntry>,
    imported: usize,
}

impl TapeLedger {
    async fn read(tapes: &TapeRepository, record: &TapeRecord, books: &EventLedger) -> Result<Self, StoreError> {
        let mut told = Self::default();
        let mut is_begun = false;
        let mut before = Vec::new();
        for entry in read_accepted_entries(tapes, record).await? {
            let Some(event) = parse_event_key(&entry) else {
                told.unreadable.push(UnreadableEntry { tape: record.name.clone(), entry: entry.id });
                continue;
            };
            let standing = EventOnTape { tape: record.name.clone(), event };
            let is_settled = books.outcomes.contains(&standing) || books.in_flight.contains(&standing);
            if !is_begun && !is_settled && !is_accepted_here(tapes, &standing).await? {
                before.push(standing);
                continue;
            }
            is_begun = true;
            told.accepted.push(standing);
        }
        // A tape can be brought here only as a whole, before its session goes on with it.
        if is_begun {
            told.imported = before.len();
        } else {
            told.accepted = before;
        }
        Ok(told)
    }
}

async fn is_accepted_here(tapes: &TapeRepository, standing: &EventOnTape) -> Result<bool, StoreError> {
    let record = tapes.store().inbox_record(&standing.event).await?;
    Ok(record.is_some_and(|record| record.tape == standing.tape))
}

/// The entries of every generation that tell of an accepted event, in order.
async fn read_accepted_entries(tapes: &TapeRepository, record: &TapeRecord) -> Result<Vec<Entry>, StoreError> {
    let mut found = Vec::new();
    for generation in 1..=record.generation {
        // Another tape store may have more by now than this record knows of.
        let mut slice = TapeSlice {
            up_to: Some(record.head),
            kinds: vec![EntryKind::Event],
            limit: Some(ACCEPTED_PAGE_SIZE),
            ..TapeSlice::default()
        };
        loop {
            let page = tapes.read_generation(&record.name, generation, &slice).await?;
            let Some(last) = page.last().map(|entry| entry.id) else { break };
            slice.after = Some(last);
            found.extend(page.into_iter().filter(|entry| entry.event_kind() == Some(TapeEventKind::EventAccepted)));
        }
    }
    Ok(found)
}

fn parse_event_key(entry: &Entry) -> Option<EventKey> {
    let accepted = EventAcceptance::from_entry(entry)?;
    Some(EventKey::from(&*accepted.event))
}

#[cfg(test)]
#[path = "conservation_tests.rs"]
mod tests;
