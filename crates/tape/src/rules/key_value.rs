//! Rules of key-value namespaces: revisions, totals and quotas.

use capstan_protocol::Timestamp;

use super::RowAccess;
use crate::nesting_limit::{is_too_deep, too_deep_error};
use crate::{KeyValueRecord, NamespaceRecord, QuotaUpdate, StoreError};

pub(super) fn put_key_value(rows: &mut dyn RowAccess, record: &KeyValueRecord) -> Result<(), StoreError> {
    if is_too_deep(&record.value) {
        return Err(too_deep_error(format!("{} of {}", record.key, record.space)));
    }
    let before = rows.key_value(&record.space, &record.key)?;
    let mut namespace = bump_revision(rows, &record.space, record.at)?;
    namespace.update_totals(before.as_ref(), Some(record));
    rows.put_namespace(&namespace)?;
    rows.put_key_value(record)
}

pub(super) fn remove_key_value(
    rows: &mut dyn RowAccess,
    namespace: &str,
    key: &str,
    removed_at: Timestamp,
) -> Result<(), StoreError> {
    let Some(before) = rows.key_value(namespace, key)? else { return Ok(()) };
    let mut record = bump_revision(rows, namespace, removed_at)?;
    record.update_totals(Some(&before), None);
    rows.put_namespace(&record)?;
    rows.remove_key_value(namespace, key)
}

/// Applies the changes, or returns false if the quota is exceeded.
pub(super) fn update_within_quota(rows: &mut dyn RowAccess, update: &QuotaUpdate) -> Result<bool, StoreError> {
    let before = rows.namespace(&update.namespace)?;
    let mut after = before.unwrap_or_else(|| NamespaceRecord::empty(&*update.namespace, Timestamp::from_millis(0)));
    for change in &update.changes {
        after.update_totals(rows.key_value(&update.namespace, &change.key)?.as_ref(), change.unless_removed());
    }
    if !update.is_within_quota(&after) {
        return Ok(false);
    }
    for change in &update.changes {
        match change.unless_removed() {
            Some(record) => put_key_value(rows, record)?,
            None => remove_key_value(rows, &update.namespace, &change.key, change.at)?,
        }
    }
    Ok(true)
}

/// Record of the namespace with the next revision.
fn bump_revision(rows: &mut dyn RowAccess, namespace: &str, at: Timestamp) -> Result<NamespaceRecord, StoreError> {
    let record = rows.namespace(namespace)?.unwrap_or_else(|| NamespaceRecord::empty(namespace, at));
    Ok(NamespaceRecord { revision: record.revision + 1, at, ..record })
}
