//! What was said to somebody else, and left by a process that died before it could let it go.

use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_protocol::{EntryId, Event, TapeName, Timestamp};
use capstan_tape::{
    Entry, EntryKind, EntryOrder, EventAcceptance, InFlightEvent, StoreError, TapeRepository, TapeSlice,
};

use crate::intake_policy::IntakePolicy;

/// How many entries are read at once.
const UNADDRESSED_PAGE_SIZE: usize = 100;

/// Whether an event was not meant for the bot when it was accepted: not addressed to it, and nobody had spoken to it
/// within the active window of its channel. The tape tells who had.
pub(super) async fn is_unaddressed(
    tapes: &TapeRepository,
    policy: &IntakePolicy,
    event: &InFlightEvent,
    inbound: &InboundEvent,
) -> Result<bool, StoreError> {
    let window = policy.options_for(inbound).debounce.and_then(|debounce| debounce.active_window);
    let Some(window) = window.filter(|_| !is_addressed_or_command(inbound)) else { return Ok(false) };
    let opened = last_addressed_at(tapes, &event.tape, event.entry, event.accepted_at, window).await?;
    Ok(opened.is_none())
}

/// When somebody last spoke to the bot before an entry, if that was within the window before this moment.
async fn last_addressed_at(
    tapes: &TapeRepository,
    tape: &TapeName,
    before: EntryId,
    moment: Timestamp,
    window: Duration,
) -> Result<Option<Timestamp>, StoreError> {
    let millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    let earliest = moment.plus_millis(millis.saturating_neg());
    let mut slice = TapeSlice {
        up_to: Some(EntryId(before.0.saturating_sub(1))),
        kinds: vec![EntryKind::Event],
        order: EntryOrder::NewestFirst,
        limit: Some(UNADDRESSED_PAGE_SIZE),
        ..TapeSlice::default()
    };
    loop {
        let page = tapes.read_any_generation(tape, &slice).await?;
        let Some(oldest) = page.last().map(|entry| entry.id) else { return Ok(None) };
        for entry in &page {
            match entry.date.timestamp() {
                Some(at) if at <= earliest => return Ok(None),
                Some(at) if is_addressed_entry(entry) => return Ok(Some(at)),
                _ => {}
            }
        }
        slice.up_to = Some(EntryId(oldest.0.saturating_sub(1)));
    }
}

fn is_addressed_or_command(event: &Event) -> bool {
    event.is_addressed() || event.command_line().is_some()
}

fn is_addressed_entry(entry: &Entry) -> bool {
    EventAcceptance::from_entry(entry)
        .is_some_and(|accepted| accepted.without_turn.is_none() && is_addressed_or_command(&accepted.event))
}
