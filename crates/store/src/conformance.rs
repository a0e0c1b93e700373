//! The suites every store passes.
//!
//! Whoever writes a store runs [`store_suite`] on it, whoever writes a tape store [`tape_store_suite`] and
//! [`handover_suite`]. A suite panics at the first promise that is not kept.
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

/// What every store promises. `make` gives a new, empty store each time.
///
/// # Panics
///
/// Where the store breaks a promise.
pub async fn store_suite(make: impl AsyncFn() -> Arc<dyn Store>) {
    let make = || async { make().await };
    entries::appended_entries_get_ids_and_dates(&*make().await).await;
    entries::facts_see_the_facts_before_them(&*make().await).await;
    entries::a_batch_is_applied_whole_or_not_at_all(&*make().await).await;
    entries::a_known_tape_stays_as_it_is(&*make().await).await;
    entries::an_unnamed_tape_learns_whose_it_is(&*make().await).await;
    entries::imported_entries_keep_what_they_are(&*make().await).await;
    entries::p14_a_large_payload_comes_back_as_it_was(&*make().await).await;
    entries::what_could_not_be_read_back_is_refused(&*make().await).await;
    entries::imported_ids_must_increase(&*make().await).await;
    entries::entries_that_were_handed_over_go(&*make().await).await;
    entries::a_fork_has_a_parent_and_a_position(&*make().await).await;
    entries::a_reset_begins_a_generation(&*make().await).await;
    entries::an_expected_head_is_compared(&*make().await).await;
    slices::every_slice_is_what_a_plain_list_gives(&*make().await).await;
    journal::an_event_is_accepted_once_and_settled_once(&*make().await).await;
    journal::runs_are_kept_and_listed_newest_first(&*make().await).await;
    journal::the_outbox_keeps_its_order(&*make().await).await;
    journal::blobs_state_and_workspaces_are_kept(&*make().await).await;
    key_value::g06_a_value_is_kept_until_it_is_forgotten(&*make().await).await;
    key_value::g06_what_there_is_no_room_for_is_told_and_costs_nothing_else(&*make().await).await;
    key_value::g06_a_space_knows_how_often_it_changed_and_how_much_it_holds(&*make().await).await;
    in_flight::an_event_is_in_flight_until_it_is_settled(&*make().await).await;
    in_flight::an_event_is_taken_over_from_whoever_had_it(&*make().await).await;
    in_flight::an_event_that_was_taken_in_knows_its_message(&*make().await).await;
    in_flight::a_run_that_has_not_ended_is_found_and_can_be_asked_to_end(&*make().await).await;
    in_flight::a_run_is_created_started_and_ended_once(&*make().await).await;
    in_flight::messages_wait_until_their_fate_is_known(&*make().await).await;
    paging::tapes_are_listed_page_by_page(&*make().await).await;
    paging::runs_are_listed_page_by_page(&*make().await).await;
    paging::events_are_listed_page_by_page(&*make().await).await;
    paging::messages_are_listed_page_by_page(&*make().await).await;
    paging::values_and_namespaces_are_listed_page_by_page(&*make().await).await;
    paging::rows_written_while_a_listing_is_read_are_seen_after_its_cursor(&*make().await).await;
    leases::a_lease_has_one_owner(&*make().await).await;
    leases::an_owner_that_is_alive_keeps_its_lease_past_its_time(&*make().await).await;
    leases::the_lease_of_a_dead_owner_is_void_at_once(&*make().await).await;
    leases::every_tape_has_a_lease_of_its_own(&*make().await).await;
    leases::a_fence_refuses_whoever_lost_the_lease(&*make().await).await;
    entries::a_store_finds_nothing_wrong_with_itself(&*make().await).await;
}

/// What every tape store promises. `make` gives a new, empty tape store each time.
///
/// # Panics
///
/// Where the tape store breaks a promise.
pub async fn tape_store_suite(make: impl AsyncFn() -> Arc<dyn TapeStore>) {
    let make = || async { make().await };
    tape_store::entries_come_back_as_they_were(&*make().await).await;
    tape_store::the_same_entry_may_come_again(&*make().await).await;
    tape_store::an_unknown_tape_has_no_entries(&*make().await).await;
    slices::every_slice_of_a_tape_store_is_what_a_plain_list_gives(&*make().await).await;
}

/// What [`Tapes`] promise over any store, with or without another tape store. `make` gives new, empty ones each time.
///
/// # Panics
///
/// Where a promise is broken.
pub async fn tapes_suite(make: impl AsyncFn() -> TapeRepository) {
    let make = || async { make().await };
    forks::p09_a_fork_sees_its_parent_and_keeps_its_writes(&make().await).await;
    forks::p09_a_merged_fork_joins_under_new_ids(&make().await).await;
    forks::p09_a_merge_waits_for_an_open_call(&make().await).await;
    forks::p09_a_discarded_fork_goes_nowhere(&make().await).await;
    forks::p09_a_fork_at_an_entry_sees_no_further(&make().await).await;
    forks::p09_a_fork_of_a_past_generation_sees_that_one(&make().await).await;
    generations::p11_a_reset_begins_with_session_start_and_ids_go_on(&make().await).await;
    generations::p11_a_past_generation_stays_readable(&make().await).await;
    generations::p04_a_window_is_the_anchor_what_it_names_and_what_follows(&make().await).await;
    generations::p04_a_window_that_grew_is_the_one_that_is_there(&make().await).await;
    queries::p10_queries_by_anchor(&make().await).await;
    queries::p10_queries_by_date_kind_limit_and_text(&make().await).await;
    queries::p10_a_search_looks_beyond_one_page(&make().await).await;
}

/// What a host promises about a tape store: nothing is lost when it fails, and a tape it has goes on.
///
/// # Panics
///
/// Where a promise is broken.
pub async fn replication_suite(make: impl AsyncFn() -> (Arc<dyn Store>, Arc<dyn TapeStore>)) {
    replication::d09_entries_move_to_the_tape_store(make().await).await;
    replication::d09_nothing_is_lost_while_the_tape_store_fails(make().await).await;
    replication::d09_a_tape_that_was_begun_elsewhere_goes_on(make().await).await;
    replication::d09_a_tape_of_the_store_moves_as_a_whole(make().await).await;
    replication::d09_a_tape_that_is_kept_elsewhere_cannot_be_written_without_it(make().await).await;
    replication::d09_what_is_kept_elsewhere_is_not_taken_for_nothing(make().await).await;
    replication::d09_a_fork_of_what_is_kept_elsewhere_needs_it_too(make().await).await;
    replication::d09_a_fork_that_is_kept_elsewhere_is_not_merged_without_it(make().await).await;
}
