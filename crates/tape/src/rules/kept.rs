//! What is kept in a space, and how much that is.

use capstan_protocol::Timestamp;

use super::Rows;
use super::depth::{is_too_deep, too_deep};
use crate::{Kept, SpaceRecord, StoreError};

pub(super) fn keep(rows: &mut dyn Rows, kept: &Kept) -> Result<(), StoreError> {
    if is_too_deep(&kept.value) {
        return Err(too_deep(format!("{} of {}", kept.key, kept.space)));
    }
    let before = rows.kept(&kept.space, &kept.key)?;
    let mut space = changed(rows, &kept.space, kept.at)?;
    match before {
        Some(before) => space.bytes = space.bytes.saturating_sub(before.bytes()),
        None => space.rows += 1,
    }
    space.bytes += kept.bytes();
    rows.put_space(&space)?;
    rows.put_kept(kept)
}

pub(super) fn forget(rows: &mut dyn Rows, space: &str, key: &str, at: Timestamp) -> Result<(), StoreError> {
    let Some(before) = rows.kept(space, key)? else { return Ok(()) };
    let mut record = changed(rows, space, at)?;
    record.rows = record.rows.saturating_sub(1);
    record.bytes = record.bytes.saturating_sub(before.bytes());
    rows.put_space(&record)?;
    rows.remove_kept(space, key)
}

/// The space, once more changed.
fn changed(rows: &mut dyn Rows, space: &str, at: Timestamp) -> Result<SpaceRecord, StoreError> {
    let known = rows.space(space)?;
    let record = known.unwrap_or_else(|| SpaceRecord { space: space.to_owned(), revision: 0, rows: 0, bytes: 0, at });
    Ok(SpaceRecord { revision: record.revision + 1, at, ..record })
}
