//! `capstan runs show`.

use std::collections::BTreeSet;

use capstan_protocol::{EntryId, EventKey, EventOrigin, RunId, Timestamp, Usage};
use capstan_tape::{
    Entry, EntryKind, EventAcceptance, InFlightEvent, InboxRecord, RunRecord, StoreError, TapeEventKind,
    TapeRepository, TapeSlice,
};
use serde_json::{Value, json};

use super::super::tape::summarize_entry;
use super::super::{print_json, print_lines, replace_control_chars, truncate_line};
use super::grant;
use crate::CommandError;

/// Number of entries read at once.
const ENTRIES_PER_PAGE: usize = 1000;
/// Number of entries before a run that are searched for events folded into it: conversations that share a session are
/// accepted concurrently, so their events may be written out of order.
const FOLDED_LOOKBACK_ENTRIES: u64 = 100;

/// A run, its event and its results.
struct RunDetails {
    run: RunRecord,
    accepted: Option<InboxRecord>,
    /// Origin of the event.
    origin: Option<EventOrigin>,
    /// Text of the event.
    text: Option<String>,
    /// Payload as sent by the platform, if it was stored.
    raw_event: Option<String>,
    /// Entries of the run, in order.
    results: Vec<Entry>,
    /// Other events folded into the run.
    folded_events: Vec<FoldedEvent>,
}

/// An event folded into the run of another event.
struct FoldedEvent {
    key: EventKey,
    at: Timestamp,
    /// Ingested, and not settled before the run ends.
    in_flight: bool,
}

pub(super) async fn show(tapes: &TapeRepository, run: RunRecord, json: bool) -> Result<(), CommandError> {
    let details = RunDetails::load(tapes, run).await?;
    if json {
        print_json(&details.to_json())
    } else {
        print_lines(details.to_lines().iter().map(|line| replace_control_chars(line)))
    }
}

impl RunDetails {
    async fn load(tapes: &TapeRepository, run: RunRecord) -> Result<Self, StoreError> {
        let accepted = tapes.store().inbox_record(&run.event).await?;
        let acceptance = match &accepted {
            Some(accepted) => read_acceptance(tapes, accepted).await?,
            None => None,
        };
        let inline = acceptance.as_ref().and_then(|acceptance| acceptance.raw.clone());
        let raw_event = match (inline, acceptance.as_ref().and_then(|acceptance| acceptance.event.raw_ref.as_ref())) {
            (None, Some(raw)) => {
                let bytes = tapes.store().blob(&raw.blob).await?;
                bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            }
            (inline, _) => inline,
        };
        let origin = acceptance.as_ref().map(EventAcceptance::origin);
        let text = acceptance.map(|acceptance| acceptance.event.input.plain_text().to_owned());
        let results = read_results(tapes, &run).await?;
        let folded_events = find_folded_events(tapes, &run).await?;
        Ok(Self { run, accepted, origin, text, raw_event, results, folded_events })
    }

    fn to_json(&self) -> Value {
        let mut object = json!(self.run);
        let accepted = self.accepted.as_ref();
        object["accepted"] = json!(accepted.map(|accepted| {
            json!({ "at": accepted.accepted_at, "tape": accepted.tape, "entry": accepted.entry, "origin": self.origin,
                "text": self.text, "raw": self.raw_event })
        }));
        object["outcome"] = json!(accepted.and_then(|accepted| accepted.outcome.as_ref()).map(|(outcome, _)| outcome));
        object["results"] = self
            .numbered_results()
            .map(|(sequence, entry)| {
                json!({ "sequence": sequence, "what": summarize_entry(entry), "kind": entry.kind.as_str(), "entry": entry.id,
                    "date": entry.date.as_str() })
            })
            .collect();
        object["folded"] = self
            .folded_events
            .iter()
            .map(|folded| json!({ "event": folded.key, "accepted_at": folded.at, "in_flight": folded.in_flight }))
            .collect();
        object
    }

    fn to_lines(&self) -> Vec<String> {
        let run = &self.run;
        let ended = run.ended_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let cancelling = if run.cancel_requested { " (cancel requested)" } else { "" };
        let outcome = self.accepted.as_ref().and_then(|accepted| accepted.outcome.as_ref());
        let mut lines = vec![
            format!("run       {}", run.run_id),
            format!("status    {}{cancelling}", run.status),
            format!("session   {}", run.session),
            format!("tape      {}", run.tape),
            format!("runner    {} (binding {})", run.runner, run.binding),
            format!("started   {}", run.started_at),
            format!("deadline  {}", run.deadline.map_or_else(|| "-".to_owned(), |at| at.to_string())),
            format!("ended     {ended}"),
            format!("parent    {}", run.parent.as_ref().map_or("-", |parent| parent.as_str())),
            format!("event     {} of {}", run.event.event_id, run.event.source),
        ];
        lines.extend(self.text.as_ref().map(|text| format!("          {}", truncate_line(text))));
        lines.extend(self.origin.map(|origin| format!("origin    {origin}")));
        lines.push(format!("outcome   {}", outcome.map_or("none yet", |(outcome, _)| outcome.name())));
        lines.push(format!("usage     {}", format_usage(run.usage.as_ref())));
        for (index, line) in grant::format_grant(&run.grant).iter().enumerate() {
            lines.push(format!("{:9} {line}", if index == 0 { "grant" } else { "" }));
        }
        for folded in &self.folded_events {
            let state = if folded.in_flight { "ingested" } else { "folded" };
            lines.push(format!("{state:9} {} of {}", folded.key.event_id, folded.key.source));
        }
        lines.push(format!("results   {}", self.results.len()));
        lines.extend(self.numbered_results().map(|(sequence, entry)| {
            format!("{sequence:>5}  {:11} {}", entry.kind.as_str(), truncate_line(&summarize_entry(entry)))
        }));
        lines
    }

    /// Results with their sequence numbers. Entries older than sequence numbers are counted.
    fn numbered_results(&self) -> impl Iterator<Item = (u64, &Entry)> {
        (1..).zip(&self.results).map(|(position, entry)| (entry.sequence().unwrap_or(position), entry))
    }
}

/// Formats token counts. A count that was not reported is unknown, not zero.
fn format_usage(usage: Option<&Usage>) -> String {
    let Some(usage) = usage else { return "unknown".to_owned() };
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string());
    let (prompt, completion) = (tokens(usage.prompt_tokens), tokens(usage.completion_tokens));
    format!("prompt {prompt}, completion {completion}, total {} tokens", tokens(usage.total_tokens))
}

/// Reads the acceptance of the event of an inbox record.
async fn read_acceptance(
    tapes: &TapeRepository,
    accepted: &InboxRecord,
) -> Result<Option<EventAcceptance>, StoreError> {
    let before = EntryId(accepted.entry.0.saturating_sub(1));
    let slice = TapeSlice { up_to: Some(accepted.entry), ..TapeSlice::after(before) };
    let entries = read_all_generations(tapes, &accepted.tape, slice, |_| true).await?;
    Ok(entries.first().and_then(EventAcceptance::from_entry))
}

/// Reads the entries of a run, in order.
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

/// Finds the events folded into a run, settled or in flight. They were accepted together with the event of the run, or
/// while it ran; the tape then has their `event.accepted` entries near those of the run.
async fn find_folded_events(tapes: &TapeRepository, run: &RunRecord) -> Result<Vec<FoldedEvent>, StoreError> {
    let after = EntryId(run.begins_after.0.saturating_sub(FOLDED_LOOKBACK_ENTRIES));
    let slice = TapeSlice { kinds: vec![EntryKind::Event], ..TapeSlice::after(after) };
    let is_accepted = |entry: &Entry| entry.event_kind() == Some(TapeEventKind::EventAccepted);
    let accepted = read_all_generations(tapes, &run.tape, slice, is_accepted).await?;
    let arrived =
        accepted.iter().filter_map(EventAcceptance::from_entry).map(|accepted| EventKey::from(&*accepted.event));
    let mut folded = Vec::new();
    for key in run.others.iter().cloned().chain(arrived).collect::<BTreeSet<EventKey>>() {
        if let Some(record) = tapes.store().inbox_record(&key).await?.filter(|one| is_folded(one, &run.run_id)) {
            folded.push(FoldedEvent { key: record.key, at: record.accepted_at, in_flight: false });
        }
    }
    let is_ingested = |event: &InFlightEvent| {
        event.key != run.event && event.ingestion.as_ref().is_some_and(|ingestion| ingestion.run_id == run.run_id)
    };
    let mut in_flight = tapes.store().in_flight_events(Some(&run.tape));
    while let Some(event) = in_flight.next().await? {
        if is_ingested(&event) {
            folded.push(FoldedEvent { key: event.key, at: event.accepted_at, in_flight: true });
        }
    }
    folded.sort_by_key(|event| event.at);
    Ok(folded)
}

fn is_folded(record: &InboxRecord, run: &RunId) -> bool {
    matches!(&record.outcome, Some((capstan_protocol::Outcome::Folded { run_id }, _)) if run_id == run)
}
