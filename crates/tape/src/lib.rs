//! Tapes: append-only records of conversations, the contracts of their stores, and the views derived from them.
//!
//! - [`Entry`] is an entry of a tape, [`EntryDraft`] one to be appended; [`TapeEvent`] lists the events of the host.
//! - [`ChainHash`] links each entry to the one before it; [`ChainCheck`] finds the first break.
//! - [`Store`] combines the traits of a store, such as [`JournalStore`] and [`OutboxStore`]. Every write is a
//!   [`Batch`], applied atomically, usually under a [`Fence`]; [`rules`] defines its effect for all stores.
//!   [`MemoryStore`] is here.
//! - [`TapeStore`] is the contract of an external store for entries, provided by a plugin.
//! - [`TapeRepository`] reads and writes tapes over both: windows, queries, anchors, forks, generations, the event log.
//! - [`TextSearch`] decides which entries match a text.
//! - [`DefaultView`] turns a [`ContextWindow`] into messages for a model; [`conversation`] makes them valid for every
//!   provider. [`TapeReader`] is the bounded, read-only handle of plugins that select other messages.
//!
//! The crate knows nothing of hooks, models and channels, and does no I/O; SQLite and JSONL are in `capstan-store`.

mod batch;
mod canonical_json;
mod chain;
mod chain_check;
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
mod marked_blob;
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
mod tape_reader;
mod tape_slice;
mod view;

pub use capstan_protocol::OutboxStatus;
pub use capstan_protocol::run_api::EntryOrder;

pub use batch::{
    Batch, BatchPrecondition, CommitDurability, CommitReceipt, EntryRef, Fact, FactOutput, Fence, LeaseEpoch, OutboxId,
    OwnerLiveness,
};
pub use canonical_json::canonical_json;
pub use chain::{ChainHash, ChainHead, ChainHeadError, ChainLink, ContentDigest};
pub use chain_check::{ChainBreak, ChainBreakCause, ChainCheck, ChainedEntry};
pub use date::{DateRange, EntryDate};
pub use entry::{Entry, EntryDraft, meta_keys};
pub use entry_gap::EntryGap;
pub use entry_kind::EntryKind;
pub use error::StoreError;
pub use event_log::EventLogRow;
pub use events::{
    ActionDenier, ActionEnd, ActionEndRecord, ActionRefusal, ActionStart, ApiRefusal, ArtifactRemoval, BindingChange,
    ChildActions, CommandEnd, CommandStart, CommandStatus, DispatchVote, DroppedResult, EventAcceptance, HandoffNotice,
    LoopStart, LoopStepEnd, LoopStepStart, LoopStepStatus, ModelCallEnd, ModelCallRecord, ModelCallStatus,
    NamespaceClearing, NamespaceEdit, OutboundDispatch, ResultAnomalies, StateChange, StateKeyChange, StateKeyEdit,
    StateKeyRemoval, StorageChange, StoredBinding, TapeEvent, TapeEventKind,
};
pub use fork::merge_drafts;
pub use incremental_window::IncrementalWindow;
pub use key_value::{KeyValueRecord, NamespaceRecord, QuotaUpdate};
pub use marked_blob::MarkedBlob;
pub use memory::{MemoryStore, MemoryTapeStore};
pub use naming::{TapeAddress, blob_hash, fork_of_session, fork_session, tape_name};
pub use nesting_limit::{MAX_NESTING_DEPTH, is_deeper_than};
pub use query::{Query, QueryStart};
pub use records::{
    EventIngestion, ForkPoint, ForkState, InFlightEvent, InboxRecord, IntegrityProblem, LeaseRecord, NewOutboxMessage,
    NewTape, OutboxRecord, RESTORED_OWNER, RunRecord, RunStatus, SettledEvent, TapeGeneration, TapeRecord,
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
pub use tape_reader::{TapeReadError, TapeReader, TapeWindow, WindowStart};
pub use tape_slice::TapeSlice;
pub use view::DefaultView;
