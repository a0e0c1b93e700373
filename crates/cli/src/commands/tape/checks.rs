//! Checks of arguments against a tape, so that a wrong argument is an error instead of an empty result.

use capstan_protocol::{ErrorCode, SessionId, TapeName};
use capstan_tape::{EntryKind, Query, QueryStart, TapeRepository, TapeSlice};

use crate::CommandError;

fn usage_error(message: String, hint: &str) -> CommandError {
    CommandError::new(ErrorCode::Usage, message).with_hint(hint)
}

/// Rejects a generation that the tape never had.
pub(super) async fn check_generation(tapes: &TapeRepository, tape: &TapeName, number: u32) -> Result<(), CommandError> {
    let newest = tapes.record(tape).await?.map_or(0, |record| record.generation);
    if (1..=newest).contains(&number) {
        return Ok(());
    }
    let message = format!("tape {tape} has no generation {number}; the newest is {newest}");
    Err(usage_error(message, "generations are numbered from 1; omit --generation for the newest"))
}

/// Warns of an anchor that is not on the tape, which makes the result empty.
pub(super) async fn warn_of_missing_anchors(
    tapes: &TapeRepository,
    tape: &TapeName,
    query: &Query,
) -> Result<(), CommandError> {
    let start = match &query.start {
        QueryStart::Anchor(name) => Some(name),
        _ => None,
    };
    let names: Vec<&String> = start.into_iter().chain(&query.until_anchor).collect();
    if names.is_empty() {
        return Ok(());
    }
    let anchors = tapes.read(tape, &TapeSlice { kinds: vec![EntryKind::Anchor], ..TapeSlice::default() }).await?;
    for name in names {
        if !anchors.iter().any(|anchor| anchor.name() == Some(name)) {
            stderr_line!("warning: tape {tape} has no anchor {name:?} (`capstan tape anchors NAME` lists them)");
        }
    }
    Ok(())
}

/// Rejects an entry beyond the head of the tape.
pub(super) async fn check_entry(tapes: &TapeRepository, tape: &TapeName, at: Option<u64>) -> Result<(), CommandError> {
    let head = tapes.record(tape).await?.map(|record| record.head.0).unwrap_or_default();
    match at {
        Some(at) if at > head => {
            let message = format!("tape {tape} has no entry {at}; the newest is {head}");
            Err(usage_error(message, "`capstan tape show NAME` lists the entries; omit --at for the newest"))
        }
        _ => Ok(()),
    }
}

/// Rejects a tape that is not a fork.
pub(super) async fn check_fork(tapes: &TapeRepository, tape: &TapeName) -> Result<(), CommandError> {
    match tapes.record(tape).await? {
        Some(record) if record.fork.is_none() => {
            Err(usage_error(format!("tape {tape} is not a fork"), "`capstan tape list` shows which tapes are forks"))
        }
        _ => Ok(()),
    }
}

/// Rejects a tape name that equals a session id, because the new tape would hide the tape of that session.
pub(super) async fn check_name_is_free(tapes: &TapeRepository, name: &TapeName) -> Result<(), CommandError> {
    let has_name = |session: &SessionId| session.as_str() == name.as_str();
    let reason = if name.as_str() == capstan_host::SYSTEM_SESSION {
        "the session of the host"
    } else if tapes.list().await?.iter().any(|record| record.session.as_ref().is_some_and(has_name)) {
        "a session with a tape of its own"
    } else {
        return Ok(());
    };
    Err(CommandError::new(ErrorCode::TapeExists, format!("{name} is {reason}")))
}
