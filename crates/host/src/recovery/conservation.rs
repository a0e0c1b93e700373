//! Accepted = outcomes + in flight: whether no accepted event was lost, and none ended twice.
//!
//! What was accepted is counted from the tapes, what ended and what is in flight each from rows of its own. The three
//! are compared by the identity of each event, never by subtraction.

use std::collections::{BTreeMap, BTreeSet};

use capstan_protocol::{EntryId, Event, EventKey, SessionId, TapeName, WorkspaceId};
use capstan_tape::{Entry, Kind, Slice, StoreError, TapeRecord, Tapes};
use serde::{Deserialize as _, Serialize};

/// The name of the entry that tells of an accepted event.
const ACCEPTED: &str = "event.accepted";
/// How many entries are read at once.
const PAGE: usize = 10_000;

/// An event, and the tape it stands on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Standing {
    /// The tape.
    pub tape: TapeName,
    /// The event.
    #[serde(flatten)]
    pub event: EventKey,
}

/// What is to be compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Books {
    /// Every entry that tells of an accepted event.
    pub accepted: Vec<Standing>,
    /// The events that have an outcome.
    pub outcomes: BTreeSet<Standing>,
    /// The events that are in flight.
    pub in_flight: BTreeSet<Standing>,
}

/// An event of which there is more than there should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Surplus {
    /// The event.
    #[serde(flatten)]
    pub standing: Standing,
    /// What there is too much of.
    pub why: Excess,
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Excess {
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
pub struct Difference {
    /// Events that stand on a tape, have no outcome and are not in flight.
    pub missing: Vec<Standing>,
    /// Events of which there is more than there should be.
    pub surplus: Vec<Surplus>,
}

impl Books {
    /// Everything in which the books differ, in a fixed order.
    pub fn compare(&self) -> Difference {
        let mut accepted: BTreeMap<&Standing, usize> = BTreeMap::new();
        for standing in &self.accepted {
            *accepted.entry(standing).or_default() += 1;
        }
        let is_known = |standing: &&Standing| self.outcomes.contains(standing) || self.in_flight.contains(standing);
        let missing = accepted.keys().filter(|standing| !is_known(standing)).map(|standing| (*standing).clone());
        let told = |standing: &&Standing| !accepted.contains_key(standing);
        let surplus = |standing: &Standing, why| Surplus { standing: standing.clone(), why };
        let twice = accepted.iter().filter(|(_, count)| **count > 1).map(|(standing, _)| *standing);
        let both = self.outcomes.intersection(&self.in_flight);
        let mut found: Vec<Surplus> = both.map(|one| surplus(one, Excess::OutcomeAndInFlight)).collect();
        found.extend(self.outcomes.iter().filter(told).map(|one| surplus(one, Excess::OutcomeWithoutEntry)));
        found.extend(self.in_flight.iter().filter(told).map(|one| surplus(one, Excess::InFlightWithoutEntry)));
        found.extend(twice.map(|one| surplus(one, Excess::AcceptedTwice)));
        found.sort();
        Difference { missing: missing.collect(), surplus: found }
    }
}

/// The books of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionBooks {
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
pub struct Unreadable {
    /// The tape.
    pub tape: TapeName,
    /// The entry.
    pub entry: EntryId,
}

/// What was accepted, what became of it, and what does not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// How many events the tapes tell of.
    pub accepted: usize,
    /// How many events have an outcome.
    pub outcomes: usize,
    /// How many events are in flight.
    pub in_flight: usize,
    /// Events that stand on a tape, have no outcome and are not in flight.
    pub missing: Vec<Standing>,
    /// Events of which there is more than there should be.
    pub surplus: Vec<Surplus>,
    /// Entries that tell of an event which cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Entries of events that another host accepted, on tapes that were brought here with them. They count for nothing.
    pub brought_along: usize,
    /// Every session.
    pub sessions: Vec<SessionBooks>,
}

impl Conservation {
    /// Whether everything adds up.
    pub fn holds(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty() && self.unreadable.is_empty()
    }

    /// Reads and compares everything.
    ///
    /// Over a store that others write to, the numbers need not be of one moment; but what is named as missing or surplus
    /// was so at two readings, between which no event can look wrong twice by the way it goes.
    pub async fn check(tapes: &Tapes) -> Result<Self, StoreError> {
        let first = Self::read(tapes).await?;
        if first.holds() {
            return Ok(first);
        }
        let mut second = Self::read(tapes).await?;
        second.missing.retain(|one| first.missing.contains(one));
        second.surplus.retain(|one| first.surplus.contains(one));
        Ok(second)
    }

    async fn read(tapes: &Tapes) -> Result<Self, StoreError> {
        // In this order: an event that goes from in flight to its outcome meanwhile is seen, and its entry was there
        // before its rows.
        let in_flight = tapes.store().in_flight(None).await?;
        let in_flight = in_flight.into_iter().map(|event| Standing { tape: event.tape, event: event.key });
        let mut books = Books { in_flight: in_flight.collect(), ..Books::default() };
        let settled = tapes.store().settled().await?;
        books.outcomes = settled.into_iter().map(|event| Standing { tape: event.tape, event: event.key }).collect();
        let mut found = Self { outcomes: books.outcomes.len(), in_flight: books.in_flight.len(), ..Self::default() };
        let (settled_of, flying_of) = (by_tape(&books.outcomes), by_tape(&books.in_flight));
        let count =
            |by_tape: &BTreeMap<TapeName, usize>, tape: &TapeName| by_tape.get(tape).copied().unwrap_or_default();
        for record in tapes.store().tapes().await? {
            // Only the tape of a session tells of what was accepted here; a fork or an imported tape is a copy.
            let Some(session) = record.session.clone() else { continue };
            let told = Told::of(tapes, &record, &books).await?;
            found.sessions.push(SessionBooks {
                session,
                tape: record.name.clone(),
                workspace: record.workspace.clone(),
                accepted: told.accepted.len(),
                outcomes: count(&settled_of, &record.name),
                in_flight: count(&flying_of, &record.name),
            });
            found.unreadable.extend(told.unreadable);
            found.brought_along += told.brought_along;
            books.accepted.extend(told.accepted);
        }
        found.accepted = books.accepted.len();
        let Difference { missing, surplus } = books.compare();
        Ok(Self { missing, surplus, ..found })
    }
}

fn by_tape(events: &BTreeSet<Standing>) -> BTreeMap<TapeName, usize> {
    let mut counts = BTreeMap::new();
    for one in events {
        *counts.entry(one.tape.clone()).or_default() += 1;
    }
    counts
}

/// What one tape tells of.
#[derive(Default)]
struct Told {
    accepted: Vec<Standing>,
    unreadable: Vec<Unreadable>,
    brought_along: usize,
}

impl Told {
    async fn of(tapes: &Tapes, record: &TapeRecord, books: &Books) -> Result<Self, StoreError> {
        let mut told = Self::default();
        let mut is_begun = false;
        let mut before = Vec::new();
        for entry in accepted_entries(tapes, record).await? {
            let Some(event) = event_of(&entry) else {
                told.unreadable.push(Unreadable { tape: record.name.clone(), entry: entry.id });
                continue;
            };
            let standing = Standing { tape: record.name.clone(), event };
            let is_settled = books.outcomes.contains(&standing) || books.in_flight.contains(&standing);
            if !is_begun && !is_settled && !was_accepted_here(tapes, &standing).await? {
                before.push(standing);
                continue;
            }
            is_begun = true;
            told.accepted.push(standing);
        }
        // A tape can be brought here only as a whole, before its session goes on with it.
        if is_begun {
            told.brought_along = before.len();
        } else {
            told.accepted = before;
        }
        Ok(told)
    }
}

async fn was_accepted_here(tapes: &Tapes, standing: &Standing) -> Result<bool, StoreError> {
    let record = tapes.store().accepted(&standing.event).await?;
    Ok(record.is_some_and(|record| record.tape == standing.tape))
}

/// The entries of every generation that tell of an accepted event, in order.
async fn accepted_entries(tapes: &Tapes, record: &TapeRecord) -> Result<Vec<Entry>, StoreError> {
    let mut found = Vec::new();
    for generation in 1..=record.generation {
        // Another tape store may have more by now than this record knows of.
        let mut slice =
            Slice { up_to: Some(record.head), kinds: vec![Kind::Event], limit: Some(PAGE), ..Slice::default() };
        loop {
            let page = tapes.read_generation(&record.name, generation, &slice).await?;
            let Some(last) = page.last().map(|entry| entry.id) else { break };
            slice.after = Some(last);
            found.extend(page.into_iter().filter(|entry| entry.name() == Some(ACCEPTED)));
        }
    }
    Ok(found)
}

fn event_of(entry: &Entry) -> Option<EventKey> {
    let event = Event::deserialize(entry.payload.get("data")?.get("event")?).ok()?;
    Some(EventKey::from(&event))
}

#[cfg(test)]
#[path = "conservation_tests.rs"]
mod tests;
