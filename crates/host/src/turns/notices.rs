//! Notices: what is said when events end without a reply. Each takes the way of a reply, and a turn has one.

use std::collections::HashMap;

use capstan_hooks::InboundEvent;
use capstan_hooks::args::ErrorStage;
use capstan_protocol::{Binding, EventKey, OutboundMessage};
use capstan_tape::{DispatchVote, EntryDraft, InFlightEvent, OutboundDispatch, TapeEvent};
use capstan_turn::{DispatchReport, TurnError};

use super::staging::TurnStaging;
use crate::delivery::route;
use crate::engine::Engine;
use crate::sessions::accepted_event::TurnBatch;

/// What is said about events that end without a turn.
#[derive(Debug, Clone)]
pub(crate) struct PreparedNotice {
    /// What their outcome says.
    pub(crate) notice: String,
    /// What goes out.
    pub(crate) outbounds: Vec<OutboundMessage>,
    /// What became of it on the way.
    pub(crate) dispatch_entry: Option<EntryDraft>,
}

/// What was said about events that a dead process left, by the first of them.
#[derive(Debug, Default)]
pub(crate) struct NoticeCache(HashMap<EventKey, PreparedNotice>);

impl NoticeCache {
    /// [Says why](Engine::say_why) events end, once: however often their end is tried to be written, it is the same.
    pub(crate) async fn prepare_once(
        &mut self,
        engine: &Engine,
        events: &[InFlightEvent],
        group: Option<&TurnBatch>,
        error: &TurnError,
    ) -> PreparedNotice {
        let Some(first) = events.first() else { return engine.prepare_notice(group, error).await };
        if let Some(said) = self.0.get(&first.key) {
            return said.clone();
        }
        let said = engine.prepare_notice(group, error).await;
        self.0.insert(first.key.clone(), said.clone());
        said
    }
}

impl Engine {
    /// Tells the observers why events end that a dead process left, and has the one notice dispatched. There are no
    /// events where none can be read any more.
    async fn prepare_notice(&self, group: Option<&TurnBatch>, error: &TurnError) -> PreparedNotice {
        let staging = self.notify_observers(group.map(|group| &group.inbound), error).await;
        let dispatched = match group {
            Some(group) => self.dispatch_notice(group, &staging).await,
            None => None,
        };
        PreparedNotice {
            notice: staging.notice().unwrap_or_else(|| error.public_message()),
            outbounds: staging.outbounds(),
            dispatch_entry: dispatched.as_ref().map(dispatch_report_entry),
        }
    }

    /// Tells the observers why events end without what a turn would have staged, and gives what they want said instead.
    pub(crate) async fn notify_observers(&self, inbound: Option<&InboundEvent>, error: &TurnError) -> TurnStaging {
        let staging = TurnStaging::default();
        if let Some(inbound) = inbound {
            inbound.extensions().insert(staging.clone());
        }
        self.services.hooks.notify_error(ErrorStage::Turn, error.to_report(), inbound.cloned()).await;
        staging
    }

    /// The one notice of the turn takes the same way as a reply. A failure on that way is logged: there is no other.
    pub(crate) async fn dispatch_notice(&self, group: &TurnBatch, staging: &TurnStaging) -> Option<DispatchReport> {
        let outbound = OutboundMessage::notice(&group.inbound, group.lead.session.clone(), staging.notice()?);
        let outbound = self.route_notice(outbound, &group.inbound).await?;
        match self.turn_pipeline.dispatch_outbound(&group.inbound, outbound.clone()).await {
            Ok(dispatched) => Some(dispatched),
            Err(error) => {
                tracing::warn!(%error, "the notice could not be dispatched by the hooks");
                staging.stage(outbound);
                None
            }
        }
    }

    /// Where a message goes about an event that may have had no turn in this process.
    async fn route_notice(&self, outbound: OutboundMessage, inbound: &InboundEvent) -> Option<OutboundMessage> {
        if inbound.extensions().get::<Binding>().is_none()
            && let Err(error) = self.services.resolve_binding(inbound).await
        {
            tracing::warn!(%error, "the binding of an event cannot be read, so its notice goes where it came from");
        }
        route::route_outbound(outbound, inbound)
    }
}

/// Who said that a message was sent, or staged, and who that it was not.
pub(crate) fn dispatch_report_entry(dispatched: &DispatchReport) -> EntryDraft {
    let votes = dispatched.sent_by.iter().map(|(plugin, sent)| DispatchVote { plugin: plugin.clone(), sent: *sent });
    let dispatch = OutboundDispatch {
        kind: dispatched.outbound.kind,
        channel: dispatched.outbound.channel.clone(),
        chat_id: dispatched.outbound.chat_id.clone(),
        sent: votes.collect(),
    };
    TapeEvent::Outbound(dispatch).into()
}
