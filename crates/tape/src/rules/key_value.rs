//! What is kept in a space, and how much that is.

use capstan_protocol::Timestamp;

use super::RowAccess;
use crate::nesting_limit::{is_too_deep, too_deep_error};
use crate::{KeyValueRecord, NamespaceRecord, QuotaUpdate, StoreError};

pub(super) fn put_key_value(rows: &mut dyn RowAccess, kept: &KeyValueRecord) -> Result<(), StoreError> {
    if is_too_deep(&kept.value) {
        return Err(too_deep_error(format!("{} of {}", kept.key, kept.space)));
    }
    let before = rows.key_value(&kept.space, &kept.key)?;
    let mut space = bump_revision(rows, &kept.space, kept.at)?;
    space.update_totals(before.as_ref(), Some(kept));
    rows.put_namespace(&space)?;
    rows.put_key_value(kept)
}

pub(super) fn remove_key_value(
    rows: &mut dyn RowAccess,
    space: &str,
    key: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let Some(before) = rows.key_value(space, key)? else { return Ok(()) };
    let mut record = bump_revision(rows, space, at)?;
    record.update_totals(Some(&before), None);
    rows.put_namespace(&record)?;
    rows.remove_key_value(space, key)
}

/// Says whether there was room.
pub(super) fn update_within_quota(rows: &mut dyn RowAccess, change: &QuotaUpdate) -> Result<bool, StoreError> {
    let known = rows.namespace(&change.namespace)?;
    let mut after = known.unwrap_or_else(|| NamespaceRecord::empty(&*change.namespace, Timestamp::from_millis(0)));
    for kept in &change.changes {
        after.update_totals(rows.key_value(&change.namespace, &kept.key)?.as_ref(), kept.unless_removed());
    }
    if !change.is_within_quota(&after) {
        return Ok(false);
    }
    for kept in &change.changes {
        match kept.unless_removed() {
            Some(kept) => put_key_value(rows, kept)?,
            None => remove_key_value(rows, &change.namespace, &kept.key, kept.at)?,
        }
    }
    Ok(true)
}

/// The space, once more changed.
fn bump_revision(rows: &mut dyn RowAccess, space: &str, at: Timestamp) -> Result<NamespaceRecord, StoreError> {
    let record = rows.namespace(space)?.unwrap_or_else(|| NamespaceRecord::empty(space, at));
    Ok(NamespaceRecord { revision: record.revision + 1, at, ..record })
}
