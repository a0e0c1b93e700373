//! Conformance of reads: every [`TapeSlice`] returns the entries that the same selection takes from a list.

use capstan_protocol::EntryId;
use capstan_tape::{DateRange, Entry, EntryDate, EntryKind, EntryOrder, Fact, Store, TapeSlice, TapeStore};
use serde_json::json;

use super::fixture::{commit, ensure_tape, entry, single_fact_batch, tape_name};

/// Entries of every kind, with gaps between their ids, invalid dates and dates within one millisecond.
fn mixed_entries() -> Vec<Entry> {
    let kinds = ["anchor", "message", "tool_call", "tool_result", "event", "bub.custom", "message", "anchor", "error"];
    let dates =
        ["2026-11-15T10:00:00.000400+00:00", "2026-11-15T10:00:00.000600Z", "no date", "2026-11-16", "1969-12-31"];
    let make = |n: u64| {
        let position = usize::try_from(n).unwrap_or_default();
        let payload = json!({"name": (["a", "b", "a"][position % 3]), "n": n});
        let date = EntryDate::verbatim(dates[position % dates.len()]);
        Entry { date, ..entry(n * 3 + 1, kinds[position % kinds.len()], payload) }
    };
    (0..40).map(make).collect()
}

fn all_slices() -> Vec<TapeSlice> {
    let id = |id| Some(EntryId(id));
    let bounds = [
        (None, None),
        (id(0), None),
        (id(40), None),
        (id(41), id(90)),
        (None, id(7)),
        (id(90), id(40)),
        (id(999), None),
        (None, id(u64::MAX)),
    ];
    let kinds = [
        vec![],
        vec![EntryKind::Anchor],
        vec![EntryKind::ToolCall],
        vec![EntryKind::Message, EntryKind::Anchor],
        vec![EntryKind::from("bub.custom")],
    ];
    let day = DateRange::between("2026-11-15", "2026-11-15");
    let moment = DateRange::between("2026-11-15T10:00:00.000500Z", "2026-11-15T10:00:00.000500Z");
    let old = DateRange::between("1969-01-01", "1969-12-31");
    let dates = [None, day.ok(), moment.ok(), old.ok()];
    let mut slices = Vec::new();
    for (after, up_to) in bounds {
        for kinds in &kinds {
            for anchor in [None, Some("a".to_owned()), Some("c".to_owned())] {
                for date_range in dates {
                    for order in [EntryOrder::OldestFirst, EntryOrder::NewestFirst] {
                        for limit in [None, Some(0), Some(1), Some(3)] {
                            let (kinds, anchor) = (kinds.clone(), anchor.clone());
                            slices.push(TapeSlice { after, up_to, kinds, anchor, date_range, order, limit });
                        }
                    }
                }
            }
        }
    }
    slices
}

pub(super) async fn every_slice_equals_a_selection_from_a_list(store: &dyn Store) {
    let tape = tape_name("t");
    // The tapes before and after `t` must not leak into its slices.
    for name in ["s", "t", "u"].map(tape_name) {
        let mut batch = single_fact_batch(ensure_tape(&name));
        batch.push(Fact::ImportEntries { tape: name, entries: mixed_entries() });
        commit(store, batch).await;
    }
    let expected_entries = mixed_entries();
    for slice in all_slices() {
        assert_eq!(store.read(&tape, &slice).await.unwrap(), slice.select(expected_entries.iter()), "{slice:?}");
    }
}

pub(super) async fn every_slice_of_a_tape_store_equals_a_selection_from_a_list(store: &dyn TapeStore) {
    let tape = tape_name("t");
    store.append(&tape, &mixed_entries()).await.unwrap();
    let expected_entries = mixed_entries();
    for slice in all_slices() {
        assert_eq!(store.read(&tape, &slice).await.unwrap(), slice.select(expected_entries.iter()), "{slice:?}");
    }
}
