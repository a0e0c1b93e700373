//! What is kept in a space, and how much that is.

use capstan_protocol::Timestamp;

use super::Rows;
use crate::depth::{is_too_deep, too_deep};
use crate::{KeepWithin, Kept, SpaceRecord, StoreError};

pub(super) fn keep(rows: &mut dyn Rows, kept: &Kept) -> Result<(), StoreError> {
    if is_too_deep(&kept.value) {
        return Err(too_deep(format!("{} of {}", kept.key, kept.space)));
    }
    let before = rows.kept(&kept.space, &kept.key)?;
    let mut space = changed(rows, &kept.space, kept.at)?;
    space.count(before.as_ref(), Some(kept));
    rows.put_space(&space)?;
    rows.put_kept(kept)
}

pub(super) fn forget(rows: &mut dyn Rows, space: &str, key: &str, at: Timestamp) -> Result<(), StoreError> {
    let Some(before) = rows.kept(space, key)? else { return Ok(()) };
    let mut record = changed(rows, space, at)?;
    record.count(Some(&before), None);
    rows.put_space(&record)?;
    rows.remove_kept(space, key)
}

/// Says whether there was room.
pub(super) fn keep_within(rows: &mut dyn Rows, change: &KeepWithin) -> Result<bool, StoreError> {
    let known = rows.space(&change.space)?;
    let mut after = known.unwrap_or_else(|| SpaceRecord::empty(&*change.space, Timestamp::from_millis(0)));
    for kept in &change.changes {
        after.count(rows.kept(&change.space, &kept.key)?.as_ref(), kept.remains());
    }
    if !change.fits(&after) {
        return Ok(false);
    }
    for kept in &change.changes {
        match kept.remains() {
            Some(kept) => keep(rows, kept)?,
            None => forget(rows, &change.space, &kept.key, kept.at)?,
        }
    }
    Ok(true)
}

/// The space, once more changed.
fn changed(rows: &mut dyn Rows, space: &str, at: Timestamp) -> Result<SpaceRecord, StoreError> {
    let record = rows.space(space)?.unwrap_or_else(|| SpaceRecord::empty(space, at));
    Ok(SpaceRecord { revision: record.revision + 1, at, ..record })
}
