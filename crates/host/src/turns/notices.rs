//! Notices: what is said when events end without a reply. Each takes the way of a reply, and a turn has one.

use std::collections::HashMap;

use capstan_hooks::Inbound;
use capstan_hooks::args::Stage;
use capstan_protocol::{Binding, EventKey, Outbound};
use capstan_tape::{Draft, InFlight};
use capstan_turn::{Dispatched, TurnError};
use serde_json::json;

use super::staging::Staging;
use crate::delivery::route;
use crate::engine::Engine;
use crate::sessions::item::Group;

/// What is said about events that end without a turn.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// What their outcome says.
    pub(crate) notice: String,
    /// What goes out.
    pub(crate) outbounds: Vec<Outbound>,
    /// What became of it on the way.
    pub(crate) flags: Option<Draft>,
}

/// What was said about events that a dead process left, by the first of them.
#[derive(Debug, Default)]
pub(crate) struct SaidBefore(HashMap<EventKey, Said>);

impl SaidBefore {
    /// [Says why](Engine::say_why) events end, once: however often their end is tried to be written, it is the same.
    pub(crate) async fn say_why(
        &mut self,
        engine: &Engine,
        events: &[InFlight],
        group: Option<&Group>,
        error: &TurnError,
    ) -> Said {
        let Some(first) = events.first() else { return engine.say_why(group, error).await };
        if let Some(said) = self.0.get(&first.key) {
            return said.clone();
        }
        let said = engine.say_why(group, error).await;
        self.0.insert(first.key.clone(), said.clone());
        said
    }
}

impl Engine {
    /// Tells the observers why events end that a dead process left, and has the one notice dispatched. There are no
    /// events where none can be read any more.
    async fn say_why(&self, group: Option<&Group>, error: &TurnError) -> Said {
        let staging = self.tell_observers(group.map(|group| &group.inbound), error).await;
        let dispatched = match group {
            Some(group) => self.dispatch_notice(group, &staging).await,
            None => None,
        };
        Said {
            notice: staging.notice().unwrap_or_else(|| error.public()),
            outbounds: staging.outbounds(),
            flags: dispatched.as_ref().map(sent_flags),
        }
    }

    /// Tells the observers why events end without what a turn would have staged, and gives what they want said instead.
    pub(crate) async fn tell_observers(&self, inbound: Option<&Inbound>, error: &TurnError) -> Staging {
        let staging = Staging::default();
        if let Some(inbound) = inbound {
            inbound.extensions().insert(staging.clone());
        }
        self.services.hooks.notify_error(Stage::Turn, error.fault(), inbound.cloned()).await;
        staging
    }

    /// The one notice of the turn takes the same way as a reply. A failure on that way is logged: there is no other.
    pub(crate) async fn dispatch_notice(&self, group: &Group, staging: &Staging) -> Option<Dispatched> {
        let outbound = Outbound::notice(&group.inbound, group.lead.session.clone(), staging.notice()?);
        let outbound = self.route(outbound, &group.inbound).await?;
        match self.turn.dispatch_outbound(&group.inbound, outbound.clone()).await {
            Ok(dispatched) => Some(dispatched),
            Err(error) => {
                tracing::warn!(%error, "the notice could not be dispatched by the hooks");
                staging.stage(outbound);
                None
            }
        }
    }

    /// Where a message goes about an event that may have had no turn in this process.
    async fn route(&self, outbound: Outbound, inbound: &Inbound) -> Option<Outbound> {
        if inbound.extensions().get::<Binding>().is_none()
            && let Err(error) = self.services.binding_of(inbound).await
        {
            tracing::warn!(%error, "the binding of an event cannot be read, so its notice goes where it came from");
        }
        route::route(outbound, inbound)
    }
}

/// Who said that a message was sent, or staged, and who that it was not.
pub(crate) fn sent_flags(dispatched: &Dispatched) -> Draft {
    let flags = dispatched.sent.iter().map(|(plugin, sent)| json!({ "plugin": plugin, "sent": sent }));
    let data = json!({
        "kind": dispatched.outbound.kind,
        "channel": dispatched.outbound.channel,
        "chat_id": dispatched.outbound.chat_id,
        "sent": flags.collect::<Vec<_>>(),
    });
    Draft::event("outbound", data)
}
