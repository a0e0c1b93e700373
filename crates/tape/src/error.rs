//! Why a store refused or failed.

use capstan_protocol::{CodedError, EventKey, TapeName};

/// Why a store refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum StoreError {
    /// The writer's lease is not the current one.
    #[error("the lease of tape {tape} was taken over: this writer may no longer write to it")]
    #[code(SessionBusy, exit = Store)]
    Fenced {
        /// The tape.
        tape: TapeName,
    },
    /// Something else was written in between.
    #[error("tape {tape} has changed in the meantime")]
    #[code(SessionBusy, exit = Store)]
    HeadMoved {
        /// The tape.
        tape: TapeName,
    },
    /// Something else was kept in between.
    #[error("{space} has changed in the meantime")]
    #[code(StoreBusy)]
    NamespaceChanged {
        /// The space.
        space: String,
    },
    /// There is no such tape.
    #[error("there is no tape {tape}")]
    #[code(TapeUnknown)]
    TapeNotFound {
        /// The name that was asked for.
        tape: TapeName,
    },
    /// It could be written, and never be read again.
    #[error("{what} cannot be kept: it is nested deeper than {most} levels")]
    #[code(NestedTooDeep)]
    NestedTooDeep {
        /// What was to be kept.
        what: String,
        /// How deep it may be.
        most: usize,
    },
    /// The tape is there already.
    #[error("tape {tape} exists already")]
    #[code(TapeExists)]
    TapeExists {
        /// Its name.
        tape: TapeName,
    },
    /// The fork was merged or discarded.
    #[error("fork {tape} is closed")]
    #[code(TapeForkClosed)]
    ForkClosed {
        /// Its name.
        tape: TapeName,
    },
    /// A tool call of the parent is still open, and a fork must not come between a call and its result.
    #[error("tape {tape} has an open tool call: its fork can be merged when the result is recorded")]
    #[code(TapeOpenCall)]
    OpenToolCall {
        /// The parent.
        tape: TapeName,
    },
    /// The tape's entries are kept by another tape store than the one in use.
    #[error("the entries of tape {tape} are kept by another tape store")]
    #[code(TapeElsewhere)]
    StoredElsewhere {
        /// Its name.
        tape: TapeName,
    },
    /// The event was accepted before.
    #[error("event {} of {} was accepted before", .key.event_id, .key.source)]
    #[code(StoreFailed)]
    DuplicateEvent {
        /// The event.
        key: EventKey,
    },
    /// The event has an outcome already, or was never accepted.
    #[error("event {} of {} has no open acceptance", .key.event_id, .key.source)]
    #[code(StoreFailed)]
    EventNotInFlight {
        /// The event.
        key: EventKey,
    },
    /// The message no longer waits, or another process sees to it.
    #[error("message {id} of the outbox is seen to by another process")]
    #[code(StoreFailed)]
    OutboxConflict {
        /// The row.
        id: u64,
    },
    /// An imported entry's id does not follow the one before it.
    #[error("entry {id} of tape {tape} does not follow entry {head}")]
    #[code(TapeOutOfOrder)]
    OutOfOrder {
        /// The tape.
        tape: TapeName,
        /// The id that was refused.
        id: u64,
        /// The id before it.
        head: u64,
    },
    /// The data is not what this program wrote, or was damaged.
    #[error("{what} is corrupt: {detail}")]
    #[code(StoreCorrupt)]
    Corrupt {
        /// Which file, table or tape.
        what: String,
        /// What was found.
        detail: String,
    },
    /// The store was written by a newer version.
    #[error("{what} has schema version {found}, this program knows up to {known}")]
    #[code(StoreTooNew)]
    SchemaTooNew {
        /// Which store.
        what: String,
        /// Its version.
        found: u32,
        /// The newest version this program knows.
        known: u32,
    },
    /// The disk has no room left, or its user's share of it. Nothing of the batch was written.
    #[error("{what} cannot be written: the disk is full")]
    #[code(DiskFull)]
    DiskFull {
        /// Which file.
        what: String,
    },
    /// The store can be read and not written.
    #[error("{what} cannot be written: {detail}")]
    #[code(StoreReadOnly)]
    ReadOnly {
        /// Which file or folder.
        what: String,
        /// Why not.
        detail: String,
    },
    /// Another process kept the store locked for longer than a writer waits. Nothing of the batch was written.
    #[error("{what} cannot be written: another process keeps it locked")]
    #[code(StoreBusy)]
    Busy {
        /// Which file.
        what: String,
    },
    /// The disk failed to keep what was written: the batch is there, and whether it stays nobody can tell. Nothing is
    /// written any more until the store is opened anew.
    #[error("{what} could not be synced: {detail}")]
    #[code(StoreUnsynced)]
    SyncFailed {
        /// Which file.
        what: String,
        /// What the system said.
        detail: String,
    },
    /// The disk, the file system or the database failed.
    #[error("{what}: {detail}")]
    #[code(StoreFailed)]
    Io {
        /// What was being done to what.
        what: String,
        /// What the system said.
        detail: String,
    },
}

impl StoreError {
    /// A failure of the disk, the file system or the database.
    pub fn io(what: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::Io { what: what.into(), detail: error.to_string() }
    }

    /// Something that may be read and not written.
    pub fn read_only(what: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::ReadOnly { what: what.into(), detail: detail.to_string() }
    }

    /// Damaged data.
    pub fn corrupt(what: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.to_string() }
    }

    /// Whether the same may work later, with nothing changed but the disk or what other processes do.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::DiskFull { .. } | Self::ReadOnly { .. } | Self::Busy { .. })
    }
}
