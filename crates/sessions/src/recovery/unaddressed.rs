//! Orphaned messages that were not addressed to the bot, and whose process died before it dropped them.

use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_protocol::{EntryId, Event, TapeName, Timestamp};
use capstan_tape::{
    Entry, EntryKind, EntryOrder, EventAcceptance, InFlightEvent, StoreError, TapeRepository, TapeSlice,
};

use crate::intake_policy::IntakePolicy;

/// Page size for reading entries.
const UNADDRESSED_PAGE_SIZE: usize = 100;

/// Returns true if an event was not for the bot when it was accepted: it is not addressed to the bot, and the tape has no
/// addressed event within the active window of the channel before it.
pub(super) async fn is_unaddressed(
    tapes: &TapeRepository,
    policy: &IntakePolicy,
    event: &InFlightEvent,
    inbound: &InboundEvent,
) -> Result<bool, StoreError> {
    let window = policy.options_for(inbound).debounce.and_then(|debounce| debounce.active_window);
    let Some(window) = window.filter(|_| !is_addressed_or_command(inbound)) else { return Ok(false) };
    let addressed_at = last_addressed_at(tapes, &event.tape, event.entry, event.accepted_at, window).await?;
    Ok(addressed_at.is_none())
}

/// Time of the last addressed event before an entry, if it is within the window before `accepted_at`.
async fn last_addressed_at(
    tapes: &TapeRepository,
    tape: &TapeName,
    before: EntryId,
    accepted_at: Timestamp,
    window: Duration,
) -> Result<Option<Timestamp>, StoreError> {
    let millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    let earliest = accepted_at.plus_millis(millis.saturating_neg());
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
