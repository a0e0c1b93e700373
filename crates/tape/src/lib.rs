//! Tapes: the append-only record of a conversation, and what is derived from it.
//!
//! - [`Entry`] is one fact on a tape; [`Draft`] is one that has no id yet.
//! - [`Store`] is the journal: every write of the host is one [`Batch`], applied whole or not at all, under a [`Fence`].
//! - [`TapeStore`] is what an extension provides to keep the entries somewhere else.
//! - [`Tapes`] reads and writes tapes over both: windows, queries, anchors, forks, generations.
//! - [`Search`] is the one rule for what a text is found in.
//! - [`Logged`] is a fact of a tape's event log: entries, and the outcomes and deliveries that belong to them.
//! - [`View`] turns a [`Window`] of entries into the messages a model reads; [`conversation`] keeps them valid.
//!
//! Nothing here knows hooks, models or channels, and only stores do I/O.

mod batch;
pub mod conversation;
mod date;
mod depth;
mod entry;
mod error;
mod event_log;
mod fork;
mod gap;
mod growing;
mod kept;
mod kind;
mod memory;
mod naming;
mod query;
mod records;
pub mod rules;
mod search;
mod slice;
mod staged;
mod store;
mod tapes;
mod view;

pub use batch::{Assigned, Batch, Committed, EntryRef, Epoch, Expect, Fact, Fence, Judged, OutboxId, Promise};
pub use date::{DateRange, EntryDate};
pub use depth::{DEEPEST, is_deeper};
pub use entry::{Draft, Entry, keys};
pub use error::StoreError;
pub use event_log::Logged;
pub use fork::merge_drafts;
pub use gap::Gap;
pub use growing::GrowingWindow;
pub use kept::{KeepWithin, Kept, SpaceRecord};
pub use kind::Kind;
pub use memory::{MemoryStore, MemoryTapes};
pub use naming::{TapeAddress, blob_hash, canonical_json, tape_name};
pub use query::{Query, Start};
pub use records::{
    AcceptedRecord, ForkPoint, ForkState, Generation, InFlight, LeaseRecord, NewOutbound, NewTape, OutboxRecord,
    OutboxStatus, Problem, RunRecord, RunStatus, Settled, TakenIn, TapeRecord,
};
pub use search::{Compound, CompoundPart, Needle, Scan, Search, is_sign, searched_text, searched_words};
pub use slice::{Order, Slice};
pub use store::{Store, TapeStore, scan};
pub use tapes::{Tapes, Window};
pub use view::{DefaultView, View};
