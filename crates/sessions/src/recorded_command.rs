//! Recorded end of a comma command, for callers that did not see it.

use capstan_protocol::{EntryId, RunId};
use capstan_tape::{CommandEnd, EntryKind, EntryOrder, StoreError, TapeEvent, TapeRepository, TapeSlice};

/// Number of entries that are read at a time.
const COMMAND_SEARCH_PAGE_SIZE: usize = 50;

/// Error of the comma command that a run executed or refused, if the command failed.
pub(crate) async fn read_command_error(tapes: &TapeRepository, run_id: &RunId) -> Result<Option<String>, StoreError> {
    Ok(read_command_end(tapes, run_id).await?.and_then(|end| end.error_message()))
}

/// Recorded end of the comma command that a run executed; `None` if it executed none.
async fn read_command_end(tapes: &TapeRepository, run_id: &RunId) -> Result<Option<CommandEnd>, StoreError> {
    let Some(run) = tapes.store().run(run_id).await? else { return Ok(None) };
    // A turn of the session may have written many entries meanwhile; the command is among the newest.
    let mut slice = TapeSlice {
        kinds: vec![EntryKind::Event],
        order: EntryOrder::NewestFirst,
        limit: Some(COMMAND_SEARCH_PAGE_SIZE),
        ..TapeSlice::after(run.begins_after)
    };
    loop {
        let page = tapes.read_any_generation(&run.tape, &slice).await?;
        let Some(oldest) = page.last() else { return Ok(None) };
        slice.up_to = Some(EntryId(oldest.id.0.saturating_sub(1)));
        let of_run = page.iter().filter(|entry| entry.run_id() == Some(run_id.as_str()));
        let found = of_run.filter_map(TapeEvent::from_entry).find_map(|event| match event {
            TapeEvent::Command(end) => Some(end),
            _ => None,
        });
        if found.is_some() {
            return Ok(found);
        }
    }
}
