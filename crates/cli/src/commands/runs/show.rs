//! `capstan runs show`.

use std::collections::BTreeSet;

use capstan_host::raw_with_acceptance;
use capstan_protocol::{EntryId, Event, EventKey, RunId, Timestamp, Usage};
use capstan_tape::{AcceptedRecord, Entry, InFlight, Kind, RunRecord, Slice, StoreError, Tapes};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::super::tape::summary;
use super::super::{plain, print_json, print_lines};
use super::grant;
use crate::Failure;

/// How many entries are read at once.
const PAGE: usize = 1000;
/// How far before a run an event may stand that came while it ran: conversations that share a session are accepted side
/// by side, and one may be heard of later than the next.
const AT_ONCE: u64 = 100;
/// How much of a result is shown on its line.
const SHOWN_CHARS: usize = 160;

/// Everything that is known about a run.
struct Known {
    run: RunRecord,
    accepted: Option<AcceptedRecord>,
    /// What the event said.
    text: Option<String>,
    /// What the platform sent, where it was kept.
    raw: Option<String>,
    /// The entries of the run, in order.
    results: Vec<Entry>,
    /// The other events that were taken into it.
    folded: Vec<Folded>,
}

/// An event that was taken into another one's run.
struct Folded {
    key: EventKey,
    at: Timestamp,
    /// It is taken in, and settled when the run ends.
    in_flight: bool,
}

pub(super) async fn show(tapes: &Tapes, run: RunRecord, json: bool) -> Result<(), Failure> {
    let known = Known::of(tapes, run).await?;
    if json { print_json(&known.in_json()) } else { print_lines(known.lines().iter().map(|line| plain(line))) }
}

impl Known {
    async fn of(tapes: &Tapes, run: RunRecord) -> Result<Self, StoreError> {
        let accepted = tapes.store().accepted(&run.event).await?;
        let (event, raw) = match &accepted {
            Some(accepted) => event_of(tapes, accepted).await?.unzip(),
            None => (None, None),
        };
        let raw = match (raw.flatten(), event.as_ref().and_then(|event| event.raw_ref.as_ref())) {
            (None, Some(raw)) => {
                let bytes = tapes.store().blob(&raw.blob).await?;
                bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            }
            (raw, _) => raw,
        };
        let text = event.map(|event| event.input.plain_text().to_owned());
        let results = results(tapes, &run).await?;
        let folded = folded(tapes, &run).await?;
        Ok(Self { run, accepted, text, raw, results, folded })
    }

    fn in_json(&self) -> Value {
        let mut shown = json!(self.run);
        let accepted = self.accepted.as_ref();
        shown["accepted"] = json!(accepted.map(|accepted| {
            json!({ "at": accepted.at, "tape": accepted.tape, "entry": accepted.entry, "text": self.text,
                "raw": self.raw })
        }));
        shown["outcome"] = json!(accepted.and_then(|accepted| accepted.outcome.as_ref()).map(|(outcome, _)| outcome));
        shown["results"] = self
            .numbered()
            .map(|(sequence, entry)| {
                json!({ "sequence": sequence, "what": summary(entry), "kind": entry.kind.as_str(), "entry": entry.id,
                    "date": entry.date.as_str() })
            })
            .collect();
        shown["folded"] = self
            .folded
            .iter()
            .map(|folded| json!({ "event": folded.key, "accepted_at": folded.at, "in_flight": folded.in_flight }))
            .collect();
        shown
    }

    fn lines(&self) -> Vec<String> {
        let run = &self.run;
        let ended = run.ended_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let asked = if run.cancel_requested { " (asked to end)" } else { "" };
        let outcome = self.accepted.as_ref().and_then(|accepted| accepted.outcome.as_ref());
        let mut lines = vec![
            format!("run       {}", run.run_id),
            format!("status    {}{asked}", run.status),
            format!("session   {}", run.session),
            format!("tape      {}", run.tape),
            format!("runner    {} (binding {})", run.runner, run.binding),
            format!("started   {}", run.started_at),
            format!("ended     {ended}"),
            format!("parent    {}", run.parent.as_ref().map_or("-", |parent| parent.as_str())),
            format!("event     {} of {}", run.event.event_id, run.event.source),
        ];
        lines.extend(self.text.as_ref().map(|text| format!("          {}", shortened(text))));
        lines.push(format!("outcome   {}", outcome.map_or("none yet", |(outcome, _)| outcome.name())));
        lines.push(format!("usage     {}", usage(run.usage.as_ref())));
        for (place, line) in grant::lines(&run.grant).iter().enumerate() {
            lines.push(format!("{:9} {line}", if place == 0 { "grant" } else { "" }));
        }
        for folded in &self.folded {
            let state = if folded.in_flight { "taken in" } else { "folded" };
            lines.push(format!("{state:9} {} of {}", folded.key.event_id, folded.key.source));
        }
        lines.push(format!("results   {}", self.results.len()));
        lines.extend(self.numbered().map(|(sequence, entry)| {
            format!("{sequence:>5}  {:11} {}", entry.kind.as_str(), shortened(&summary(entry)))
        }));
        lines
    }

    /// Each result with its place among those of the run; those that were written before places were are counted.
    fn numbered(&self) -> impl Iterator<Item = (u64, &Entry)> {
        (1..).zip(&self.results).map(|(counted, entry)| (entry.sequence().unwrap_or(counted), entry))
    }
}

fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// What was not reported is not known; it is not nothing.
fn usage(usage: Option<&Usage>) -> String {
    let Some(usage) = usage else { return "unknown".to_owned() };
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string());
    let (prompt, completion) = (tokens(usage.prompt_tokens), tokens(usage.completion_tokens));
    format!("prompt {prompt}, completion {completion}, total {} tokens", tokens(usage.total_tokens))
}

/// The event of an accepted record, and what the platform sent if it stands with it.
async fn event_of(tapes: &Tapes, accepted: &AcceptedRecord) -> Result<Option<(Event, Option<String>)>, StoreError> {
    let before = EntryId(accepted.entry.0.saturating_sub(1));
    let just_it = Slice { up_to: Some(accepted.entry), ..Slice::after(before) };
    let found = in_every_generation(tapes, &accepted.tape, just_it, |_| true).await?;
    let Some(entry) = found.first() else { return Ok(None) };
    let raw = raw_with_acceptance(entry).map(str::to_owned);
    let event = entry.payload.get("data").and_then(|told| Event::deserialize(told.get("event")?).ok());
    Ok(event.map(|event| (event, raw)))
}

/// The entries that name the run, in order.
async fn results(tapes: &Tapes, run: &RunRecord) -> Result<Vec<Entry>, StoreError> {
    let is_own = |entry: &Entry| entry.run_id() == Some(run.run_id.as_str());
    in_every_generation(tapes, &run.tape, Slice::after(run.begins_after), is_own).await
}

async fn in_every_generation(
    tapes: &Tapes,
    tape: &capstan_protocol::TapeName,
    slice: Slice,
    wanted: impl Fn(&Entry) -> bool,
) -> Result<Vec<Entry>, StoreError> {
    let mut found = Vec::new();
    for generation in 1..=tapes.record(tape).await?.map_or(0, |record| record.generation) {
        let mut slice = Slice { limit: Some(PAGE), ..slice.clone() };
        loop {
            let page = tapes.read_generation(tape, generation, &slice).await?;
            let Some(last) = page.last().map(|entry| entry.id) else { break };
            slice.after = Some(last);
            found.extend(page.into_iter().filter(&wanted));
        }
    }
    Ok(found)
}

/// The events that ended in this run, and those that it has taken in so far. They came together with its own, or while it
/// ran: then its tape tells of them there.
async fn folded(tapes: &Tapes, run: &RunRecord) -> Result<Vec<Folded>, StoreError> {
    let around = EntryId(run.begins_after.0.saturating_sub(AT_ONCE));
    let slice = Slice { kinds: vec![Kind::Event], ..Slice::after(around) };
    let told = in_every_generation(tapes, &run.tape, slice, |entry| entry.name() == Some("event.accepted")).await?;
    let event = |entry: &Entry| Event::deserialize(entry.payload.get("data")?.get("event")?).ok();
    let came = told.iter().filter_map(event).map(|event| EventKey::from(&event));
    let mut found = Vec::new();
    for key in run.others.iter().cloned().chain(came).collect::<BTreeSet<EventKey>>() {
        if let Some(record) = tapes.store().accepted(&key).await?.filter(|one| is_folded(one, &run.run_id)) {
            found.push(Folded { key: record.key, at: record.at, in_flight: false });
        }
    }
    let is_taken_in = |event: &InFlight| {
        event.key != run.event && event.taken_in.as_ref().is_some_and(|taken_in| taken_in.run_id == run.run_id)
    };
    let in_flight = tapes.store().in_flight(Some(&run.tape)).await?;
    let taken_in = in_flight.into_iter().filter(is_taken_in);
    found.extend(taken_in.map(|event| Folded { key: event.key, at: event.at, in_flight: true }));
    found.sort_by_key(|folded| folded.at);
    Ok(found)
}

fn is_folded(record: &AcceptedRecord, run: &RunId) -> bool {
    matches!(&record.outcome, Some((capstan_protocol::Outcome::Folded { run_id }, _)) if run_id == run)
}
