//! Errors of the host.

use capstan_hooks::HookError;
use capstan_protocol::{ChannelName, CodedError, EventId, SessionId};
use capstan_tape::StoreError;

/// Errors that reject an event or prevent the host from starting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum HostError {
    /// The input is larger than allowed.
    #[error("the message has {size} bytes, more than the {limit} allowed")]
    #[code(MessageTooLarge)]
    MessageTooLarge {
        /// Size of the message, in bytes.
        size: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// No channel has this name.
    #[error("there is no channel {channel}; known: {known}")]
    #[code(ChannelUnknown)]
    UnknownChannel {
        /// The requested name.
        channel: ChannelName,
        /// The names of the known channels.
        known: String,
    },
    /// An event of another session has this id.
    #[error("the event id {event_id} was used for an event of another session")]
    #[code(EventIdTaken)]
    EventIdConflict {
        /// The id.
        event_id: EventId,
    },
    /// The session is reserved for the host.
    #[error("the session {session} is reserved: the host records changes of bindings and stored state in it")]
    #[code(SessionReserved)]
    SessionReserved {
        /// The session.
        session: SessionId,
    },
    /// The queue of the session is full.
    #[error("the queue of this session is full")]
    #[code(QueueFull)]
    QueueFull,
    /// Another process held the session for longer than a caller waits.
    #[error("the session is being worked on by another process")]
    #[code(SessionBusy)]
    SessionBusy,
    /// The host is stopping.
    #[error("the host is stopping")]
    #[code(HostStopping)]
    Stopping,
    /// A start-up hook failed.
    #[error(transparent)]
    #[code(HookFailed)]
    Hook(#[from] HookError),
    /// The store rejected a change or failed.
    #[error(transparent)]
    #[code(transparent)]
    Store(#[from] StoreError),
    /// The store failed before the effects of tools were recorded.
    #[error("{error}; {tools} had run before: check what was done before you ask again")]
    #[code(field = error)]
    UnrecordedEffects {
        /// The failure of the store.
        error: StoreError,
        /// The names of the tools.
        tools: String,
    },
    /// The lock file that marks this process as alive cannot be created.
    #[error("cannot lock {path}: {detail}")]
    #[code(HomeUnusable, exit = Store)]
    ProcessLock {
        /// The file.
        path: String,
        /// The error of the operating system.
        detail: String,
    },
}
