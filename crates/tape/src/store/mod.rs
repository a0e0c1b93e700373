//! Contracts of stores.
//!
//! A store implements small traits by what they serve: [`JournalStore`] (tapes, entries, commits), [`LedgerStore`]
//! (runs), [`InboxStore`] (accepted events), [`OutboxStore`] (messages to be sent), [`KeyValueStore`], [`LeaseStore`]
//! and [`BlobStore`]. [`Store`] is all of them. Writes of all kinds are facts of one [`Batch`](crate::Batch): only
//! [`JournalStore::commit`] writes.
//!
//! A listing has a page method, which a store implements, and a method that returns [`RowPages`].

mod blob;
mod inbox;
mod journal;
mod key_value;
mod lease;
mod ledger;
mod outbox;
mod row_pages;
mod tape_store;

pub use blob::BlobStore;
pub use inbox::InboxStore;
pub use journal::{JournalStore, search_by_scan};
pub use key_value::KeyValueStore;
pub use lease::LeaseStore;
pub use ledger::LedgerStore;
pub use outbox::OutboxStore;
pub use row_pages::RowPages;
pub use tape_store::TapeStore;

/// Store of a host. Every implementation passes the same conformance suite.
pub trait Store:
    JournalStore + LedgerStore + InboxStore + OutboxStore + KeyValueStore + LeaseStore + BlobStore
{
}

impl<S> Store for S where
    S: JournalStore + LedgerStore + InboxStore + OutboxStore + KeyValueStore + LeaseStore + BlobStore
{
}
