//! Whether what a command asks of a tape is there: an empty answer would say that there is nothing to see.

use capstan_protocol::{ErrorCode, SessionId, TapeName};
use capstan_tape::{EntryKind, Query, QueryStart, TapeRepository, TapeSlice};

use crate::CommandError;

fn usage_error(message: String, hint: &str) -> CommandError {
    CommandError::new(ErrorCode::Usage, message).with_hint(hint)
}

/// Refuses a generation that the tape never had.
pub(super) async fn check_generation(tapes: &TapeRepository, tape: &TapeName, number: u32) -> Result<(), CommandError> {
    let newest = tapes.record(tape).await?.map_or(0, |record| record.generation);
    if (1..=newest).contains(&number) {
        return Ok(());
    }
    let message = format!("there is no generation {number} of tape {tape}, whose newest is {newest}");
    Err(usage_error(message, "generations are numbered from 1 on; without --generation the newest is meant"))
}

/// Warns of an anchor that is not on the tape: nothing is found after it.
pub(super) async fn warn_of_missing_anchors(
    tapes: &TapeRepository,
    tape: &TapeName,
    query: &Query,
) -> Result<(), CommandError> {
    let start = match &query.start {
        QueryStart::Anchor(name) => Some(name),
        _ => None,
    };
    let wanted: Vec<&String> = start.into_iter().chain(&query.until_anchor).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let anchors = tapes.read(tape, &TapeSlice { kinds: vec![EntryKind::Anchor], ..TapeSlice::default() }).await?;
    for name in wanted {
        if !anchors.iter().any(|anchor| anchor.name() == Some(name)) {
            stderr_line!(
                "warning: there is no anchor {name:?} on tape {tape} (`capstan tape anchors NAME` lists them)"
            );
        }
    }
    Ok(())
}

/// Refuses an entry that the tape does not have yet.
pub(super) async fn check_entry(tapes: &TapeRepository, tape: &TapeName, at: Option<u64>) -> Result<(), CommandError> {
    let head = tapes.record(tape).await?.map(|record| record.head.0).unwrap_or_default();
    match at {
        Some(at) if at > head => {
            let message = format!("there is no entry {at} on tape {tape}, whose newest is {head}");
            Err(usage_error(message, "`capstan tape show NAME` lists the entries; without --at the newest is meant"))
        }
        _ => Ok(()),
    }
}

/// Refuses a tape that is no fork.
pub(super) async fn check_fork(tapes: &TapeRepository, tape: &TapeName) -> Result<(), CommandError> {
    match tapes.record(tape).await? {
        Some(record) if record.fork.is_none() => {
            Err(usage_error(format!("tape {tape} is no fork"), "`capstan tape list` tells which are"))
        }
        _ => Ok(()),
    }
}

/// Refuses a name for a new tape by which a session is asked for: from then on the session's own tape would be hidden.
pub(super) async fn check_name_is_free(tapes: &TapeRepository, name: &TapeName) -> Result<(), CommandError> {
    let is_meant = |session: &SessionId| session.as_str() == name.as_str();
    let whose = if name.as_str() == capstan_host::SYSTEM_SESSION {
        "the host's own session"
    } else if tapes.list().await?.iter().any(|record| record.session.as_ref().is_some_and(is_meant)) {
        "a session, which has a tape"
    } else {
        return Ok(());
    };
    Err(CommandError::new(ErrorCode::TapeExists, format!("{name} is {whose}")))
}
