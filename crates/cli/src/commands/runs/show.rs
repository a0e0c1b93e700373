//! `capstan runs show`.

use std::collections::BTreeSet;

use capstan_protocol::{EntryId, Event, EventKey, RunId, Timestamp, Usage};
use capstan_tape::{
    Entry, EntryKind, EventAcceptance, InFlightEvent, InboxRecord, RunRecord, StoreError, TapeEventKind,
    TapeRepository, TapeSlice,
};
use serde_json::{Value, json};

use super::super::tape::summarize_entry;
use super::super::{print_json, print_lines, replace_control_chars};
use super::grant;
use crate::CommandError;

/// How many entries are read at once.
const ENTRIES_PER_PAGE: usize = 1000;
/// How far before a run an event may stand that came while it ran: conversations that share a session are accepted side
/// by side, and one may be heard of later than the next.
const FOLDED_LOOKBACK_ENTRIES: u64 = 100;
/// How much of a result is shown on its line.
const MAX_RESULT_LINE_CHARS: usize = 160;

/// Everything that is known about a run.
struct RunDetails {
    run: RunRecord,
    accepted: Option<InboxRecord>,
    /// What the event said.
    text: Option<String>,
    /// What the platform sent, where it was kept.
    raw_event: Option<String>,
    /// The entries of the run, in order.
    results: Vec<Entry>,
    /// The other events that were taken into it.
    folded_events: Vec<FoldedEvent>,
}

/// An event that was taken into another one's run.
struct FoldedEvent {
    key: EventKey,
    at: Timestamp,
    /// It is taken in, and settled when the run ends.
    in_flight: bool,
}

pub(super) async fn show(tapes: &TapeRepository, run: RunRecord, json: bool) -> Result<(), CommandError> {
    let known = RunDetails::load(tapes, run).await?;
    if json {
        print_json(&known.to_json())
    } else {
        print_lines(known.to_lines().iter().map(|line| replace_control_chars(line)))
    }
}

impl RunDetails {
    async fn load(tapes: &TapeRepository, run: RunRecord) -> Result<Self, StoreError> {
        let accepted = tapes.store().inbox_record(&run.event).await?;
        let (event, raw) = match &accepted {
            Some(accepted) => read_event(tapes, accepted).await?.unzip(),
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
        let results = read_results(tapes, &run).await?;
        let folded = find_folded_events(tapes, &run).await?;
        Ok(Self { run, accepted, text, raw_event: raw, results, folded_events: folded })
    }

    fn to_json(&self) -> Value {
        let mut shown = json!(self.run);
        let accepted = self.accepted.as_ref();
        shown["accepted"] = json!(accepted.map(|accepted| {
            json!({ "at": accepted.accepted_at, "tape": accepted.tape, "entry": accepted.entry, "text": self.text,
                "raw": self.raw_event })
        }));
        shown["outcome"] = json!(accepted.and_then(|accepted| accepted.outcome.as_ref()).map(|(outcome, _)| outcome));
        shown["results"] = self
            .numbered_results()
            .map(|(sequence, entry)| {
                json!({ "sequence": sequence, "what": summarize_entry(entry), "kind": entry.kind.as_str(), "entry": entry.id,
                    "date": entry.date.as_str() })
            })
            .collect();
        shown["folded"] = self
            .folded_events
            .iter()
            .map(|folded| json!({ "event": folded.key, "accepted_at": folded.at, "in_flight": folded.in_flight }))
            .collect();
        shown
    }

    fn to_lines(&self) -> Vec<String> {
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
        lines.extend(self.text.as_ref().map(|text| format!("          {}", truncate_line(text))));
        lines.push(format!("outcome   {}", outcome.map_or("none yet", |(outcome, _)| outcome.name())));
        lines.push(format!("usage     {}", format_usage(run.usage.as_ref())));
        for (place, line) in grant::format_grant(&run.grant).iter().enumerate() {
            lines.push(format!("{:9} {line}", if place == 0 { "grant" } else { "" }));
        }
        for folded in &self.folded_events {
            let state = if folded.in_flight { "taken in" } else { "folded" };
            lines.push(format!("{state:9} {} of {}", folded.key.event_id, folded.key.source));
        }
        lines.push(format!("results   {}", self.results.len()));
        lines.extend(self.numbered_results().map(|(sequence, entry)| {
            format!("{sequence:>5}  {:11} {}", entry.kind.as_str(), truncate_line(&summarize_entry(entry)))
        }));
        lines
    }

    /// Each result with its place among those of the run; those that were written before places were are counted.
    fn numbered_results(&self) -> impl Iterator<Item = (u64, &Entry)> {
        (1..).zip(&self.results).map(|(counted, entry)| (entry.sequence().unwrap_or(counted), entry))
    }
}

fn truncate_line(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_RESULT_LINE_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// What was not reported is not known; it is not nothing.
fn format_usage(usage: Option<&Usage>) -> String {
    let Some(usage) = usage else { return "unknown".to_owned() };
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string());
    let (prompt, completion) = (tokens(usage.prompt_tokens), tokens(usage.completion_tokens));
    format!("prompt {prompt}, completion {completion}, total {} tokens", tokens(usage.total_tokens))
}

/// The event of an accepted record, and what the platform sent if it stands with it.
async fn read_event(
    tapes: &TapeRepository,
    accepted: &InboxRecord,
) -> Result<Option<(Event, Option<String>)>, StoreError> {
    let before = EntryId(accepted.entry.0.saturating_sub(1));
    let just_it = TapeSlice { up_to: Some(accepted.entry), ..TapeSlice::after(before) };
    let found = read_all_generations(tapes, &accepted.tape, just_it, |_| true).await?;
    let Some(entry) = found.first() else { return Ok(None) };
    Ok(EventAcceptance::from_entry(entry).map(|accepted| (*accepted.event, accepted.raw)))
}

/// The entries that name the run, in order.
async fn read_results(tapes: &TapeRepository, run: &RunRecord) -> Result<Vec<Entry>, StoreError> {
    let is_own = |entry: &Entry| entry.run_id() == Some(run.run_id.as_str());
    read_all_generations(tapes, &run.tape, TapeSlice::after(run.begins_after), is_own).await
}

async fn read_all_generations(
    tapes: &TapeRepository,
    tape: &capstan_protocol::TapeName,
    slice: TapeSlice,
    wanted: impl Fn(&Entry) -> bool,
) -> Result<Vec<Entry>, StoreError> {
    let mut found = Vec::new();
    for generation in 1..=tapes.record(tape).await?.map_or(0, |record| record.generation) {
        let mut slice = TapeSlice { limit: Some(ENTRIES_PER_PAGE), ..slice.clone() };
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
async fn find_folded_events(tapes: &TapeRepository, run: &RunRecord) -> Result<Vec<FoldedEvent>, StoreError> {
    let around = EntryId(run.begins_after.0.saturating_sub(FOLDED_LOOKBACK_ENTRIES));
    let slice = TapeSlice { kinds: vec![EntryKind::Event], ..TapeSlice::after(around) };
    let told =
        read_all_generations(tapes, &run.tape, slice, |entry| entry.event_kind() == Some(TapeEventKind::EventAccepted))
            .await?;
    let came = told.iter().filter_map(EventAcceptance::from_entry).map(|accepted| EventKey::from(&*accepted.event));
    let mut found = Vec::new();
    for key in run.others.iter().cloned().chain(came).collect::<BTreeSet<EventKey>>() {
        if let Some(record) = tapes.store().inbox_record(&key).await?.filter(|one| is_folded(one, &run.run_id)) {
            found.push(FoldedEvent { key: record.key, at: record.accepted_at, in_flight: false });
        }
    }
    let is_taken_in = |event: &InFlightEvent| {
        event.key != run.event && event.ingestion.as_ref().is_some_and(|taken_in| taken_in.run_id == run.run_id)
    };
    let in_flight = tapes.store().in_flight_events(Some(&run.tape)).await?;
    let taken_in = in_flight.into_iter().filter(is_taken_in);
    found.extend(taken_in.map(|event| FoldedEvent { key: event.key, at: event.accepted_at, in_flight: true }));
    found.sort_by_key(|folded| folded.at);
    Ok(found)
}

fn is_folded(record: &InboxRecord, run: &RunId) -> bool {
    matches!(&record.outcome, Some((capstan_protocol::Outcome::Folded { run_id }, _)) if run_id == run)
}
