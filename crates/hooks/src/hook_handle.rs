//! Handle through which a hook acts on its turn beyond answering.
//!
//! # Design
//!
//! Hooks receive values, not the host. The [`HookTurn`] of a turn collects the effects that its hooks request through their
//! [`HookHandle`]s; nothing is written before the turn ends. The commit of the turn's end writes all effects or none, so a
//! crash neither loses a part of them nor repeats them.
//!
//! # Invariants
//!
//! - A handle has the permissions of its plugin and no others. Every effect names its plugin.
//! - Number and size of effects are limited, per plugin and turn.
//! - After the end of the turn every handle is revoked, also one that a task of the plugin still holds.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::{
    ChannelName, ChatId, Content, JsonObject, OutboundKind, OutboundMessage, PluginName, SessionId,
};
use capstan_tape::{MAX_NESTING_DEPTH, TapeEventKind, TapeReader, is_deeper_than};
use serde::Serialize;
use serde_json::Value;

use crate::{HookPermission, PluginGrant};

/// Maximum number of effects of a plugin in a turn.
pub const MAX_HOOK_EFFECTS: usize = 32;
/// Maximum size of an effect, as JSON.
pub const MAX_HOOK_EFFECT_BYTES: usize = 64 * 1024;
/// Maximum nesting of an effect: less than the limit of a tape, because the host wraps it in an entry.
const MAX_EFFECT_NESTING: usize = 100;
const _: () = assert!(MAX_EFFECT_NESTING + 10 < MAX_NESTING_DEPTH, "entries add some levels");
/// Maximum length of the name of a note or an anchor.
const MAX_EFFECT_NAME_BYTES: usize = 128;

/// Effect that a hook requested.
#[derive(Debug, Clone, PartialEq)]
pub struct HookEffect {
    /// The plugin.
    pub plugin: PluginName,
    /// The effect.
    pub action: HookAction,
}

/// Kinds of effects.
#[derive(Debug, Clone, PartialEq)]
pub enum HookAction {
    /// A note on the tape: an entry of kind `event`.
    Note {
        /// Name of the event.
        name: String,
        /// Its data.
        data: Value,
    },
    /// An anchor: the next turn reads the tape from here on.
    Anchor {
        /// Name of the anchor.
        name: String,
        /// State that the next turn gets.
        state: JsonObject,
    },
    /// A message to a chat.
    Message(Box<OutboundMessage>),
}

/// Refusal of an effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookRefusal {
    /// The plugin does not have the permission.
    #[error("the plugin has no permission {0:?}; it must declare it, and the configuration must allow it")]
    NotPermitted(String),
    /// Only the host writes events with this name.
    #[error("events named {0:?} are written by the host alone")]
    ReservedName(String),
    /// The name is empty or too long.
    #[error("a name of 1 to {MAX_EFFECT_NAME_BYTES} bytes is needed")]
    InvalidName,
    /// The effect is too large or too deeply nested.
    #[error("more than {MAX_HOOK_EFFECT_BYTES} bytes, or nested deeper than {MAX_EFFECT_NESTING} levels")]
    TooLarge,
    /// The plugin has requested the maximum number of effects in this turn.
    #[error("more than {MAX_HOOK_EFFECTS} effects of a plugin in a turn")]
    TooMany,
    /// Another turn of the session is running, or there is none, so that an anchor would cut off messages.
    #[error("an anchor cannot be written here: it belongs to the end of a turn of its own")]
    NoAnchorHere,
    /// The turn has ended, or there is none.
    #[error("the turn has ended")]
    TurnEnded,
}

/// Turn that hooks act on. Cheap to clone; clones share the effects.
#[derive(Clone)]
pub struct HookTurn {
    session: SessionId,
    tape: Option<TapeReader>,
    /// An anchor at the end of the turn cuts off no message of another turn.
    can_write_anchor: bool,
    effects: Arc<Mutex<EffectLog>>,
}

#[derive(Default)]
struct EffectLog {
    effects: Vec<HookEffect>,
    is_closed: bool,
}

impl HookTurn {
    /// Turn of a session, or events that end without one. `tape` is the session's tape.
    pub fn new(session: SessionId, tape: Option<TapeReader>) -> Self {
        Self { session, tape, can_write_anchor: false, effects: Arc::default() }
    }

    /// Allows anchors, for a turn that runs alone on its tape.
    pub fn with_anchors(self) -> Self {
        Self { can_write_anchor: true, ..self }
    }

    /// Stands for a call without a turn: every effect is refused.
    pub fn none() -> Self {
        let turn = Self::new(SessionId::new(""), None);
        turn.lock().is_closed = true;
        turn
    }

    /// Handle of a plugin's hook. `kind` is the kind of the messages that it sends.
    pub(crate) fn handle(&self, grant: &PluginGrant, kind: OutboundKind) -> HookHandle {
        HookHandle { turn: self.clone(), grant: grant.clone(), kind }
    }

    /// Revokes the handles and returns the effects, in the order of the requests.
    pub fn close(&self) -> Vec<HookEffect> {
        let mut log = self.lock();
        log.is_closed = true;
        std::mem::take(&mut log.effects)
    }

    fn lock(&self) -> MutexGuard<'_, EffectLog> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HookTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookTurn").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Handle of a hook: the effects that its plugin may have on the session of the turn. Cheap to clone.
///
/// An effect is accepted or refused at once and becomes durable with the end of the turn, whether the turn succeeds or
/// fails. It is given up if the end cannot be written or another process has taken over the session.
#[derive(Clone)]
pub struct HookHandle {
    turn: HookTurn,
    grant: PluginGrant,
    kind: OutboundKind,
}

impl HookHandle {
    /// Writes a note on the tape: an event that models do not read. The names of the host's own events are refused.
    pub fn note(&self, name: &str, data: impl Into<Value>) -> Result<(), HookRefusal> {
        self.check_permission(&HookPermission::WriteNote)?;
        check_name(name)?;
        if TapeEventKind::from_name(name).is_some() || TapeEventKind::is_reserved_name(name) {
            return Err(HookRefusal::ReservedName(name.to_owned()));
        }
        let data = data.into();
        check_size(&data)?;
        self.request(HookAction::Note { name: name.to_owned(), data })
    }

    /// Writes an anchor at the end of the turn: the next turn reads the tape from there on, with this state.
    pub fn anchor(&self, name: &str, state: JsonObject) -> Result<(), HookRefusal> {
        self.check_permission(&HookPermission::WriteAnchor)?;
        check_name(name)?;
        check_size(&state)?;
        if !self.turn.can_write_anchor {
            return Err(HookRefusal::NoAnchorHere);
        }
        self.request(HookAction::Anchor { name: name.to_owned(), state })
    }

    /// Sends a message to a chat. It is passed to `dispatch_outbound` and follows the delivery policy of the binding like a
    /// reply, but is not the reply of the turn.
    pub fn send(
        &self,
        channel: impl Into<ChannelName>,
        chat: impl Into<ChatId>,
        content: impl Into<Content>,
    ) -> Result<(), HookRefusal> {
        let channel = channel.into();
        self.check_permission(&HookPermission::SendTo(channel.clone()))?;
        let content = content.into();
        check_size(&content)?;
        self.request(HookAction::Message(Box::new(OutboundMessage {
            session_id: self.turn.session.clone(),
            channel,
            chat_id: chat.into(),
            kind: self.kind,
            content,
            reply_to: None,
            metadata: JsonObject::new(),
        })))
    }

    /// Reader of the session's tape, as far as it is committed: the last entries of this turn may be missing.
    pub fn tape(&self) -> Result<TapeReader, HookRefusal> {
        self.check_permission(&HookPermission::ReadTape)?;
        if self.turn.lock().is_closed {
            return Err(HookRefusal::TurnEnded);
        }
        self.turn.tape.clone().ok_or(HookRefusal::TurnEnded)
    }

    fn check_permission(&self, permission: &HookPermission) -> Result<(), HookRefusal> {
        let is_allowed = self.grant.permissions.allows(permission);
        if is_allowed { Ok(()) } else { Err(HookRefusal::NotPermitted(permission.to_string())) }
    }

    fn request(&self, action: HookAction) -> Result<(), HookRefusal> {
        let mut log = self.turn.lock();
        if log.is_closed {
            return Err(HookRefusal::TurnEnded);
        }
        let plugin = &self.grant.plugin;
        if log.effects.iter().filter(|effect| effect.plugin == *plugin).count() >= MAX_HOOK_EFFECTS {
            return Err(HookRefusal::TooMany);
        }
        log.effects.push(HookEffect { plugin: plugin.clone(), action });
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), HookRefusal> {
    let is_valid = !name.trim().is_empty() && name.len() <= MAX_EFFECT_NAME_BYTES;
    if is_valid { Ok(()) } else { Err(HookRefusal::InvalidName) }
}

fn check_size(content: &impl Serialize) -> Result<(), HookRefusal> {
    let value = serde_json::to_value(content).map_err(|_| HookRefusal::TooLarge)?;
    let is_deep = is_deeper_than(&value, MAX_EFFECT_NESTING);
    if is_deep || value.to_string().len() > MAX_HOOK_EFFECT_BYTES { Err(HookRefusal::TooLarge) } else { Ok(()) }
}

#[cfg(test)]
#[path = "hook_handle_tests.rs"]
mod tests;
