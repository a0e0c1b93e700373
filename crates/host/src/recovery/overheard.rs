//! What was said to somebody else, and left by a process that died before it could let it go.

use std::time::Duration;

use capstan_hooks::Inbound;
use capstan_protocol::{EntryId, Event, TapeName, Timestamp};
use capstan_tape::{Entry, InFlight, Kind, Order, Slice, StoreError};
use serde::Deserialize as _;

use super::left::WITHOUT_TURN;
use crate::services::Services;

/// How many entries are read at once.
const PAGE: usize = 100;

impl Services {
    /// Whether an event was not meant for the bot when it was accepted: not addressed to it, and nobody had spoken to it
    /// within the active window of its channel. The tape tells who had.
    pub(crate) async fn was_overheard(&self, event: &InFlight, inbound: &Inbound) -> Result<bool, StoreError> {
        let window = self.intake(inbound).debounce.and_then(|debounce| debounce.active_window);
        let Some(window) = window.filter(|_| !speaks_to_bot(inbound)) else { return Ok(false) };
        let opened = self.last_spoken_to(&event.tape, event.entry, event.at, window).await?;
        Ok(opened.is_none())
    }

    /// When somebody last spoke to the bot before an entry, if that was within the window before this moment.
    async fn last_spoken_to(
        &self,
        tape: &TapeName,
        before: EntryId,
        moment: Timestamp,
        window: Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        let millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        let earliest = moment.plus_millis(millis.saturating_neg());
        let mut slice = Slice {
            up_to: Some(EntryId(before.0.saturating_sub(1))),
            kinds: vec![Kind::Event],
            order: Order::NewestFirst,
            limit: Some(PAGE),
            ..Slice::default()
        };
        loop {
            let page = self.tapes.read_any_generation(tape, &slice).await?;
            let Some(oldest) = page.last().map(|entry| entry.id) else { return Ok(None) };
            for entry in &page {
                match entry.date.timestamp() {
                    Some(at) if at <= earliest => return Ok(None),
                    Some(at) if tells_of_one_who_spoke(entry) => return Ok(Some(at)),
                    _ => {}
                }
            }
            slice.up_to = Some(EntryId(oldest.0.saturating_sub(1)));
        }
    }
}

fn speaks_to_bot(event: &Event) -> bool {
    event.is_addressed() || event.command_line().is_some()
}

fn tells_of_one_who_spoke(entry: &Entry) -> bool {
    let data = &entry.payload["data"];
    data[WITHOUT_TURN].is_null() && Event::deserialize(&data["event"]).is_ok_and(|event| speaks_to_bot(&event))
}
