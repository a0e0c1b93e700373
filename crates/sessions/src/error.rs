//! Errors of the host.

use capstan_hooks::HookError;
use capstan_policy::AttachmentError;
use capstan_protocol::{ChannelName, CodedError, EventId, PluginName, SessionId, WorkspaceId};
use capstan_tape::StoreError;

/// Hint for an event id of another workspace, such as one that was moved.
const OTHER_WORKSPACE_HINT: &str = "use ids that are unique over all workspaces of the home; if the workspace was moved, \
                                    `capstan doctor` names the path in which its events are recovered";

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
    /// A plugin did not load, and the host must not start without it.
    #[error("the plugin {plugin} is required and did not load: {reason}")]
    #[code(PluginFailed)]
    RequiredPlugin {
        /// The plugin.
        plugin: PluginName,
        /// Reason of the failure.
        reason: String,
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
    /// An attachment refers to an address that a remote source may not name.
    #[error(transparent)]
    #[code(AttachmentRefused)]
    Attachment(#[from] AttachmentError),
    /// The event is for another workspace.
    #[error("the workspace {workspace} is not served here")]
    #[code(WorkspaceNotServed)]
    WorkspaceNotServed {
        /// The workspace that the event names.
        workspace: WorkspaceId,
    },
    /// An event of another session has this id.
    #[error("the event id {event_id} was used for an event of another session")]
    #[code(EventIdTaken)]
    EventIdConflict {
        /// The id.
        event_id: EventId,
    },
    /// An event of another workspace has this id.
    #[error("the event id {event_id} was used for an event of another workspace of this home")]
    #[code(EventIdTaken, hint = Some(OTHER_WORKSPACE_HINT))]
    EventIdOfOtherWorkspace {
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
    /// A new session has the name of a fork.
    #[error("{session} is a fork of a tape and no session")]
    #[code(SessionIsFork)]
    SessionIsFork {
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
    /// A defect of the host or of a plugin ended the acceptance of the event.
    #[error("the acceptance of event {event_id} failed because of a defect")]
    #[code(IntakeFailed)]
    IntakePanic {
        /// The id.
        event_id: EventId,
    },
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
