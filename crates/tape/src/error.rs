//! Errors of stores.

use capstan_protocol::{CodedError, EventKey, TapeName};

/// Hint for a file system without free inodes.
const NO_INODES_HINT: &str = "remove files from the file system and try again; acknowledged data is not lost";
/// Hint for a store that lost its content.
const CONTENT_LOST_HINT: &str = "put the file back, or restore the newest backup with `capstan store restore`; to begin \
                                 with an empty store, acknowledge the loss with `capstan doctor --repair`";
/// Hint for a thread that could not be started.
const NO_THREAD_HINT: &str = "the limit of processes and threads is reached: end other processes, or raise it \
                              (`ulimit -u`, or the pids limit of the container or service)";

/// Rejection of a batch, or failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum StoreError {
    /// The lease of the writer is not current.
    #[error("the lease of tape {tape} was taken over: this writer may no longer write to it")]
    #[code(SessionBusy, exit = Store)]
    Fenced {
        /// The tape.
        tape: TapeName,
    },
    /// Another batch was written to the tape in the meantime.
    #[error("tape {tape} has changed in the meantime")]
    #[code(SessionBusy, exit = Store)]
    HeadMoved {
        /// The tape.
        tape: TapeName,
    },
    /// Another batch was written to the namespace in the meantime.
    #[error("the namespace {namespace} has changed in the meantime")]
    #[code(StoreBusy)]
    NamespaceChanged {
        /// The namespace.
        namespace: String,
    },
    /// The tape does not exist.
    #[error("there is no tape {tape}")]
    #[code(TapeUnknown)]
    TapeNotFound {
        /// Name of the tape.
        tape: TapeName,
    },
    /// A value is nested so deeply that it could be written but not read again.
    #[error("{what} cannot be stored: it is nested deeper than {max_depth} levels")]
    #[code(NestedTooDeep)]
    NestedTooDeep {
        /// Description of the value.
        what: String,
        /// Maximum depth.
        max_depth: usize,
    },
    /// A tape with this name exists.
    #[error("tape {tape} already exists")]
    #[code(TapeExists)]
    TapeExists {
        /// Name of the tape.
        tape: TapeName,
    },
    /// The fork was merged or discarded.
    #[error("fork {tape} is closed")]
    #[code(TapeForkClosed)]
    ForkClosed {
        /// Name of the tape.
        tape: TapeName,
    },
    /// A tool call of the parent is open, and a merge must not separate a call from its result.
    #[error("tape {tape} has an open tool call: its fork can be merged when the result is recorded")]
    #[code(TapeOpenCall)]
    OpenToolCall {
        /// The parent.
        tape: TapeName,
    },
    /// An event of the tape has no outcome yet, so the tape cannot be merged, merged into or discarded.
    #[error("tape {tape} has an event in flight: a turn is running, or was interrupted and not resumed yet")]
    #[code(SessionBusy)]
    EventInFlight {
        /// The tape.
        tape: TapeName,
    },
    /// The entries of the tape are in another tape store than the one in use.
    #[error("the entries of tape {tape} are in another tape store")]
    #[code(TapeElsewhere)]
    StoredElsewhere {
        /// Name of the tape.
        tape: TapeName,
    },
    /// The event was already accepted.
    #[error("event {} of {} was already accepted", .key.event_id, .key.source)]
    #[code(StoreFailed)]
    DuplicateEvent {
        /// The event.
        key: EventKey,
    },
    /// The event is already settled, was never accepted, or belongs to another process.
    #[error("event {} of {} is not in flight", .key.event_id, .key.source)]
    #[code(StoreFailed)]
    EventNotInFlight {
        /// The event.
        key: EventKey,
    },
    /// The message is no longer pending, or belongs to another process.
    #[error("message {id} of the outbox is not pending, or belongs to another process")]
    #[code(StoreFailed)]
    OutboxConflict {
        /// Row of the message.
        id: u64,
    },
    /// The id of an imported entry is not greater than the previous one.
    #[error("entry {id} of tape {tape} does not follow entry {head}")]
    #[code(TapeOutOfOrder)]
    OutOfOrder {
        /// The tape.
        tape: TapeName,
        /// Rejected id.
        id: u64,
        /// Previous id.
        head: u64,
    },
    /// The data is damaged, or was not written by Capstan.
    #[error("{what} is corrupt: {detail}")]
    #[code(StoreCorrupt)]
    Corrupt {
        /// File, table or tape.
        what: String,
        /// Description of the damage.
        detail: String,
        /// The whole file is affected, not only a row or a tape: no write to it can be relied on.
        is_whole_file: bool,
    },
    /// The store was written by a newer version.
    #[error("{what} has schema version {found}, but this program supports versions up to {known}")]
    #[code(StoreTooNew)]
    SchemaTooNew {
        /// File of the store.
        what: String,
        /// Version of the store.
        found: u32,
        /// Newest supported version.
        known: u32,
    },
    /// The disk is full, or the quota of the user is exhausted. The batch was not written.
    #[error("{what} cannot be written: the disk is full")]
    #[code(DiskFull)]
    DiskFull {
        /// File that could not be written.
        what: String,
    },
    /// The file system cannot hold more files. The batch was not written.
    #[error("{what} cannot be written: the file system has no free inodes")]
    #[code(DiskFull, hint = Some(NO_INODES_HINT))]
    NoInodes {
        /// File that could not be written.
        what: String,
    },
    /// The system refused another thread.
    #[error("{what}: {detail}")]
    #[code(StoreFailed, hint = Some(NO_THREAD_HINT))]
    NoThread {
        /// Failed operation.
        what: String,
        /// Message of the operating system.
        detail: String,
    },
    /// The store can be read but not written.
    #[error("{what} cannot be written: {detail}")]
    #[code(StoreReadOnly)]
    ReadOnly {
        /// File or folder that cannot be written.
        what: String,
        /// Reason.
        detail: String,
    },
    /// Another process kept the store locked until the timeout. The batch was not written.
    #[error("{what} cannot be written: another process keeps it locked")]
    #[code(StoreBusy)]
    Busy {
        /// File that could not be written.
        what: String,
    },
    /// The disk failed to sync. The batch is written but may be lost. The store rejects all writes until it is
    /// reopened.
    #[error("{what} could not be synced: {detail}")]
    #[code(StoreUnsynced)]
    SyncFailed {
        /// File that could not be written.
        what: String,
        /// Message of the operating system or database.
        detail: String,
    },
    /// The files of the store are no longer those that were opened. The batch may be lost. The store rejects all writes
    /// until it is reopened.
    #[error("{what} is not the file that was opened: {detail}")]
    #[code(StoreReplaced)]
    FilesReplaced {
        /// File that changed.
        what: String,
        /// Description of the change.
        detail: String,
    },
    /// The store is missing or empty although it had content, so the events in it would be served again.
    #[error("{what} is missing or empty: it had {entries} entries")]
    #[code(StoreReplaced, hint = Some(CONTENT_LOST_HINT))]
    ContentLost {
        /// File of the store.
        what: String,
        /// Number of entries that it had.
        entries: u64,
    },
    /// The writer of the store has stopped because of a defect. The store rejects all writes until it is reopened.
    #[error("the writer of the store has stopped")]
    #[code(StoreStopped)]
    WriterStopped,
    /// The disk, the file system or the database failed.
    #[error("{what}: {detail}")]
    #[code(StoreFailed)]
    Io {
        /// Failed operation.
        what: String,
        /// Message of the operating system or database.
        detail: String,
    },
}

impl StoreError {
    /// Failure of the disk, the file system or the database.
    pub fn io(what: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::Io { what: what.into(), detail: error.to_string() }
    }

    /// File or folder that can be read but not written.
    pub fn read_only(what: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::ReadOnly { what: what.into(), detail: detail.to_string() }
    }

    /// Damaged data.
    pub fn corrupt(what: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.to_string(), is_whole_file: false }
    }

    /// Damaged file.
    pub fn corrupt_file(what: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.to_string(), is_whole_file: true }
    }

    /// Returns true if a file of the store is damaged, so that no write to it can be relied on.
    pub fn is_damaged_file(&self) -> bool {
        matches!(self, Self::Corrupt { is_whole_file: true, .. })
    }

    /// Returns true if the same batch may succeed later, depending only on the disk and other processes.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Io { .. }
                | Self::DiskFull { .. }
                | Self::NoInodes { .. }
                | Self::NoThread { .. }
                | Self::ReadOnly { .. }
                | Self::Busy { .. }
        )
    }
}
