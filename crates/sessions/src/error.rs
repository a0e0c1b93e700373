//! Why the host refused or failed.

use capstan_hooks::HookError;
use capstan_protocol::{ChannelName, CodedError, EventId, SessionId};
use capstan_tape::StoreError;

/// Why the host refused an event, or could not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum HostError {
    /// The input is larger than allowed.
    #[error("the message has {size} bytes, more than the {limit} allowed")]
    #[code(MessageTooLarge)]
    MessageTooLarge {
        /// Its size.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
    /// No channel of this name is provided.
    #[error("there is no channel {channel}; known: {known}")]
    #[code(ChannelUnknown)]
    UnknownChannel {
        /// The name.
        channel: ChannelName,
        /// Those there are.
        known: String,
    },
    /// Another event has this id.
    #[error("the event id {event_id} was used for an event of another session")]
    #[code(EventIdTaken)]
    EventIdConflict {
        /// The id.
        event_id: EventId,
    },
    /// The session is the host's own.
    #[error("the session {session} is the host's own: what it tells of its bindings and its state stands there")]
    #[code(SessionReserved)]
    SessionReserved {
        /// The session.
        session: SessionId,
    },
    /// As many events as may wait in the session already.
    #[error("too many messages wait in this session")]
    #[code(QueueFull)]
    QueueFull,
    /// Another process worked on the session for longer than a caller is made to wait.
    #[error("the session is being worked on by another process")]
    #[code(SessionBusy)]
    SessionBusy,
    /// The host is ending.
    #[error("the host is stopping")]
    #[code(HostStopping)]
    Stopping,
    /// A start-up hook failed.
    #[error(transparent)]
    #[code(HookFailed)]
    Hook(#[from] HookError),
    /// The store refused or failed.
    #[error(transparent)]
    #[code(transparent)]
    Store(#[from] StoreError),
    /// The store failed when what tools did was to be written.
    #[error("{error}. {tools} had run before: check what was done before you ask again")]
    #[code(of = error)]
    UnrecordedEffects {
        /// How it failed.
        error: StoreError,
        /// The tools.
        tools: String,
    },
    /// The file that shows this process to be alive could not be made.
    #[error("cannot lock {path}: {detail}")]
    #[code(HomeUnusable, exit = Store)]
    ProcessLock {
        /// The file.
        path: String,
        /// What the system said.
        detail: String,
    },
}
