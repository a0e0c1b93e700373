//! Resolution of events: the form in which an event is matched with bindings, accepted and stored.

use capstan_hooks::args::ResolveSessionArgs;
use capstan_hooks::points::ResolveSession;
use capstan_hooks::{HookError, HookRuntime, InboundEvent};
use capstan_policy::check_attachments;
use capstan_protocol::{ChannelName, Event, EventOrigin, SessionId, WorkspaceId};

use crate::{HostError, SYSTEM_SESSION};

/// Resolves events: checks them, and determines their session and workspace.
///
/// Used by the intake and by the dry run of bindings, so that both match the same event.
pub struct EventResolver {
    /// Hooks, which resolve sessions.
    pub hooks: HookRuntime,
    /// Names of the known channels.
    pub channels: Vec<ChannelName>,
    /// Workspace that is served.
    pub workspace_id: WorkspaceId,
    /// Maximum size of the input of an event, in bytes.
    pub max_message_bytes: usize,
}

/// Event with its session and its workspace.
#[derive(Debug)]
pub struct ResolvedEvent {
    /// The event.
    pub inbound: InboundEvent,
    /// Its session.
    pub session: SessionId,
    /// Failure of the hooks that resolve sessions. The session is the fallback then, and the event must not have a turn.
    pub failure: Option<HookError>,
}

impl EventResolver {
    /// Checks an event, and resolves its session and its workspace.
    pub async fn resolve(&self, inbound: &InboundEvent) -> Result<ResolvedEvent, HostError> {
        self.check_channel(inbound)?;
        self.check_size(inbound)?;
        self.check_workspace(inbound)?;
        if inbound.origin() == EventOrigin::Remote {
            check_attachments(&inbound.input.contents)?;
        }
        let (session, failure) = self.resolve_session(inbound).await;
        if session.as_str() == SYSTEM_SESSION {
            return Err(HostError::SessionReserved { session });
        }
        let inbound = inbound.with_session(session.clone(), self.workspace_id.clone());
        Ok(ResolvedEvent { inbound, session, failure })
    }

    fn check_channel(&self, event: &Event) -> Result<(), HostError> {
        let channel = event.channel();
        if self.channels.contains(&channel) {
            return Ok(());
        }
        let known: Vec<&str> = self.channels.iter().map(ChannelName::as_str).collect();
        Err(HostError::UnknownChannel { channel, known: known.join(", ") })
    }

    fn check_size(&self, event: &Event) -> Result<(), HostError> {
        let parts = match event.input.contents.as_slice() {
            [] => 0,
            parts => serde_json::to_vec(parts).map_or(usize::MAX, |bytes| bytes.len()),
        };
        let data = event.subject.as_ref().map(|subject| &subject.data).filter(|data| !data.is_empty());
        let data = data.map_or(0, |data| serde_json::to_vec(data).map_or(usize::MAX, |bytes| bytes.len()));
        let size = event.input.plain_text().len().saturating_add(parts).saturating_add(data);
        let limit = self.max_message_bytes;
        if size > limit { Err(HostError::MessageTooLarge { size, limit }) } else { Ok(()) }
    }

    /// Refuses an event for another workspace: its bindings must not be replaced by those of the served one.
    fn check_workspace(&self, event: &Event) -> Result<(), HostError> {
        match &event.workspace_id {
            Some(workspace) if *workspace != self.workspace_id => {
                Err(HostError::WorkspaceNotServed { workspace: workspace.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Resolves the session of an event. If the hooks fail, returns the fallback session and the error.
    async fn resolve_session(&self, inbound: &InboundEvent) -> (SessionId, Option<HookError>) {
        let args = ResolveSessionArgs { message: inbound.clone() };
        let fallback = inbound.fallback_session();
        match self.hooks.call_first::<ResolveSession>(&args).await {
            Ok(Some(decided)) if !decided.value.as_str().is_empty() => (decided.value, None),
            Ok(_) => {
                self.hooks.trace_fallback::<ResolveSession>(fallback.to_string());
                (fallback, None)
            }
            Err(failure) => {
                self.hooks.trace_fallback::<ResolveSession>(format!("{fallback}, without a turn"));
                (fallback, Some(failure))
            }
        }
    }
}
