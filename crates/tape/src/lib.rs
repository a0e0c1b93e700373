//! Tapes: the append-only record of a conversation, and what is derived from it.
//!
//! - [`Entry`] is one fact on a tape; [`Draft`] is one that has no id yet.
//! - [`Store`] is the contract of a store, made of small traits such as [`JournalStore`] and [`OutboxStore`]: every write of
//!   the host is one [`Batch`], applied atomically, under a [`Fence`].
//! - [`TapeStore`] is what an extension provides to keep the entries somewhere else.
//! - [`Tapes`] reads and writes tapes over both: windows, queries, anchors, forks, generations.
//! - [`Search`] is the one rule for what a text is found in.
//! - [`TapeEvent`] is the one list of the events that Capstan writes on tapes, with their data.
//! - [`Logged`] is a fact of a tape's event log: entries, and the outcomes and deliveries that belong to them.
//! - [`View`] turns a [`Window`] of entries into the messages a model reads; [`conversation`] keeps them valid.
//!
//! Nothing here knows hooks, models or channels, and only stores do I/O.

mod batch;
pub mod conversation;
mod date;
mod entry;
mod entry_gap;
mod entry_kind;
mod error;
mod event_log;
mod events;
mod fork;
mod incremental_window;
mod key_value;
mod memory;
mod naming;
mod nesting_limit;
mod overlay_map;
mod query;
mod records;
mod repository;
pub mod rules;
mod run_api_entries;
mod search;
mod store;
mod tape_slice;
mod view;

pub use capstan_protocol::OutboxStatus;
pub use capstan_protocol::run_api::EntryOrder;

pub use batch::{
    Batch, BatchPrecondition, CommitDurability, CommitReceipt, EntryRef, Fact, FactOutput, Fence, LeaseEpoch, OutboxId,
    OwnerLiveness,
};
pub use date::{DateRange, EntryDate};
pub use entry::{Entry, EntryDraft, meta_keys};
pub use entry_gap::EntryGap;
pub use entry_kind::EntryKind;
pub use error::StoreError;
pub use event_log::EventLogRecord;
pub use events::{
    ActionDenier, ActionEnd, ActionEndRecord, ActionRefusal, ActionStart, ApiRefusal, BindingChange, ChildActions,
    CommandEnd, CommandStart, CommandStatus, DispatchVote, DroppedResult, EventAcceptance, HandoffNotice, LoopStart,
    LoopStepEnd, LoopStepStart, LoopStepStatus, ModelCallEnd, ModelCallRecord, ModelCallStatus, NamespaceClearing,
    NamespaceEdit, OutboundDispatch, ResultAnomalies, StateChange, StateKeyChange, StateKeyEdit, StateKeyRemoval,
    StorageChange, StoredBinding, TapeEvent, TapeEventKind,
};
pub use fork::merge_drafts;
pub use incremental_window::IncrementalWindow;
pub use key_value::{KeyValueRecord, NamespaceRecord, QuotaUpdate};
pub use memory::{MemoryStore, MemoryTapeStore};
pub use naming::{TapeAddress, blob_hash, canonical_json, tape_name};
pub use nesting_limit::{MAX_NESTING_DEPTH, is_deeper_than};
pub use query::{Query, QueryStart};
pub use records::{
    EventIngestion, ForkPoint, ForkState, InFlightEvent, InboxRecord, IntegrityProblem, LeaseRecord, NewOutbound,
    NewTape, OutboxRecord, RunRecord, RunStatus, SettledEvent, TapeGeneration, TapeRecord,
};
pub use repository::{ContextWindow, TapeRepository};
pub use search::{
    CompoundPart, CompoundTerm, SearchScan, SearchTerm, TextSearch, is_unspaced_script, searchable_text,
    searchable_words,
};
pub use store::{
    BlobStore, InboxStore, JournalStore, KeyValueStore, LeaseStore, LedgerStore, OutboxStore, RowPages, Store,
    TapeStore, search_by_scan,
};
pub use tape_slice::TapeSlice;
pub use view::{DefaultView, View};
