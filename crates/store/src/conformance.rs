//! Conformance suites that every store passes.
//!
//! Run [`store_suite`] and [`tapes_suite`] for a store, [`tape_store_suite`] and [`replication_suite`] for a tape
//! store. A suite panics at the first violation.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::sync::Arc;
//! use capstan_store::conformance;
//! use capstan_tape::{MemoryStore, MemoryTapeStore, Store, TapeStore};
//!
//! conformance::store_suite(async || Arc::new(MemoryStore::new()) as Arc<dyn Store>).await;
//! conformance::tape_store_suite(async || Arc::new(MemoryTapeStore::new()) as Arc<dyn TapeStore>).await;
//! # }
//! ```

mod chains;
mod entries;
mod fixture;
mod forks;
mod generations;
mod in_flight;
mod journal;
mod key_value;
mod leases;
mod paging;
mod queries;
mod replication;
mod slices;
mod tape_store;

use std::sync::Arc;

use capstan_tape::{Store, TapeRepository, TapeStore};

/// Contract of every store. `make` creates a new, empty store each time.
///
/// # Panics
///
/// If the store violates the contract.
pub async fn store_suite(make: impl AsyncFn() -> Arc<dyn Store>) {
    let make = || async { make().await };
    entries::appended_entries_get_ids_and_dates(&*make().await).await;
    entries::facts_see_the_facts_before_them(&*make().await).await;
    entries::batch_is_applied_completely_or_not_at_all(&*make().await).await;
    entries::existing_tape_is_not_changed(&*make().await).await;
    entries::tape_without_a_session_gets_one_once(&*make().await).await;
    entries::imported_entries_are_preserved(&*make().await).await;
    entries::p14_large_payloads_are_preserved(&*make().await).await;
    entries::data_nested_too_deep_to_be_read_back_is_rejected(&*make().await).await;
    entries::imported_ids_must_increase(&*make().await).await;
    entries::replicated_entries_are_removed(&*make().await).await;
    entries::fork_has_a_parent_and_a_position(&*make().await).await;
    entries::reset_begins_a_generation(&*make().await).await;
    entries::expected_head_is_compared(&*make().await).await;
    slices::every_slice_equals_a_selection_from_a_list(&*make().await).await;
    journal::event_is_accepted_once_and_settled_once(&*make().await).await;
    journal::runs_are_stored_and_listed_newest_first(&*make().await).await;
    journal::outbox_preserves_the_order_of_messages(&*make().await).await;
    journal::blobs_state_and_workspaces_are_stored(&*make().await).await;
    key_value::g06_value_is_stored_until_it_is_removed(&*make().await).await;
    key_value::g06_update_over_quota_is_rejected_without_failing_the_batch(&*make().await).await;
    key_value::g06_namespace_counts_its_changes_rows_and_bytes(&*make().await).await;
    in_flight::event_is_in_flight_until_it_is_settled(&*make().await).await;
    in_flight::event_is_adopted_from_its_owner(&*make().await).await;
    in_flight::ingested_event_refers_to_its_message(&*make().await).await;
    in_flight::open_run_is_listed_and_can_be_cancelled(&*make().await).await;
    in_flight::run_is_created_started_and_ended_once(&*make().await).await;
    in_flight::messages_are_pending_until_their_delivery_is_recorded(&*make().await).await;
    paging::tapes_are_listed_page_by_page(&*make().await).await;
    paging::runs_are_listed_page_by_page(&*make().await).await;
    paging::events_are_listed_page_by_page(&*make().await).await;
    paging::messages_are_listed_page_by_page(&*make().await).await;
    paging::values_and_namespaces_are_listed_page_by_page(&*make().await).await;
    paging::rows_written_while_a_listing_is_read_are_seen_after_its_cursor(&*make().await).await;
    leases::lease_has_one_owner(&*make().await).await;
    leases::live_owner_keeps_its_expired_lease(&*make().await).await;
    leases::lease_of_a_dead_owner_is_void_at_once(&*make().await).await;
    leases::every_tape_has_a_lease_of_its_own(&*make().await).await;
    leases::fence_rejects_writers_without_the_lease(&*make().await).await;
    entries::intact_store_has_no_integrity_problems(&*make().await).await;
}

/// Contract of every tape store. `make` creates a new, empty tape store each time.
///
/// # Panics
///
/// If the tape store violates the contract.
pub async fn tape_store_suite(make: impl AsyncFn() -> Arc<dyn TapeStore>) {
    let make = || async { make().await };
    tape_store::entries_are_preserved(&*make().await).await;
    tape_store::the_same_entry_may_be_appended_again(&*make().await).await;
    tape_store::unknown_tape_has_no_entries(&*make().await).await;
    slices::every_slice_of_a_tape_store_equals_a_selection_from_a_list(&*make().await).await;
}

/// Contract of [`TapeRepository`] over any store, with or without an external tape store. `make` creates a new, empty
/// repository each time.
///
/// # Panics
///
/// If the contract is violated.
pub async fn tapes_suite(make: impl AsyncFn() -> TapeRepository) {
    let make = || async { make().await };
    forks::p09_fork_sees_its_parent_and_its_own_writes(&make().await).await;
    forks::p09_merged_entries_get_new_ids(&make().await).await;
    forks::p09_merge_is_rejected_while_a_tool_call_is_open(&make().await).await;
    forks::p09_discarded_fork_does_not_change_its_parent(&make().await).await;
    forks::p09_fork_with_an_event_in_flight_is_not_closed(&make().await).await;
    forks::p09_fork_at_an_entry_sees_no_later_entries(&make().await).await;
    forks::p09_fork_of_a_past_generation_sees_that_generation(&make().await).await;
    generations::p11_reset_begins_with_session_start_and_ids_continue(&make().await).await;
    generations::p11_past_generation_stays_readable(&make().await).await;
    generations::p04_window_has_the_anchor_its_messages_and_later_entries(&make().await).await;
    generations::p04_incremental_window_equals_the_full_window(&make().await).await;
    queries::p10_queries_by_anchor(&make().await).await;
    queries::p10_queries_by_date_kind_limit_and_text(&make().await).await;
    queries::p10_search_continues_beyond_one_page(&make().await).await;
    chains::p17_every_entry_is_linked_to_the_one_before_it(&make().await).await;
    chains::p17_chain_of_a_fork_starts_at_its_position(&make().await).await;
    chains::p17_kept_head_that_is_no_part_of_the_chain_is_reported(&make().await).await;
}

/// Contract of replication to an external tape store: no entry is lost when the tape store fails, and a tape that it
/// holds can be continued.
///
/// # Panics
///
/// If the contract is violated.
pub async fn replication_suite(make: impl AsyncFn() -> (Arc<dyn Store>, Arc<dyn TapeStore>)) {
    replication::d09_entries_move_to_the_tape_store(make().await).await;
    replication::d09_no_entry_is_lost_while_the_tape_store_fails(make().await).await;
    replication::d09_pending_entries_are_replicated_without_another_commit(make().await).await;
    replication::d09_tape_from_the_tape_store_can_be_continued(make().await).await;
    replication::d09_existing_tape_moves_completely(make().await).await;
    replication::d09_external_tape_cannot_be_written_without_its_store(make().await).await;
    replication::d09_external_tape_cannot_be_read_without_its_store(make().await).await;
    replication::d09_fork_of_an_external_tape_needs_its_store(make().await).await;
    replication::d09_external_fork_cannot_be_merged_without_its_store(make().await).await;
}
