//! Notices for events that end without a reply. A notice is routed and dispatched like a reply, and a turn has at most
//! one.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_hooks::args::{ErrorStage, NoticeRequest};
use capstan_hooks::{HookAction, HookEffect, HookRuntime, HookTurn};
use capstan_policy::BindingStore;
use capstan_protocol::{EventKey, OutboundMessage, PluginName};
use capstan_runs::Orchestrator;
use capstan_tape::{DispatchVote, EntryDraft, InFlightEvent, OutboundDispatch, TapeEvent, meta_keys};
use capstan_turn::{DispatchReport, TurnError, TurnPipeline};

use crate::accepted_event::TurnBatch;
use capstan_delivery::route_outbound;

/// Notice of events that end without a reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreparedNotice {
    /// Text of the notice.
    pub(crate) text: Option<String>,
    /// The message for the outbox, if the dispatch staged it.
    pub(crate) outbound: Option<OutboundMessage>,
    /// Entry with the flags of its dispatch.
    pub(crate) dispatch_entry: Option<EntryDraft>,
    /// Effects that the hooks of the events requested.
    pub(crate) effects: PreparedEffects,
}

/// Effects of hooks, ready to be committed with the end of their events.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreparedEffects {
    /// Notes, anchors and dispatch reports, in the order of the requests.
    pub(crate) entries: Vec<EntryDraft>,
    /// Messages that the dispatch staged.
    pub(crate) outbounds: Vec<OutboundMessage>,
}

/// Notices about orphaned events, keyed by the first event of each batch.
#[derive(Debug, Default)]
pub(crate) struct NoticeCache(HashMap<EventKey, PreparedNotice>);

impl NoticeCache {
    /// Prepares the notice of events that end, once: retries of writing their end reuse it.
    pub(crate) async fn prepare_once(
        &mut self,
        notices: &NoticeDispatcher,
        events: &[InFlightEvent],
        batch: Option<&TurnBatch>,
        error: &TurnError,
    ) -> PreparedNotice {
        let Some(first) = events.first() else { return notices.prepare_notice(batch, error).await };
        if let Some(notice) = self.0.get(&first.key) {
            return notice.clone();
        }
        let notice = notices.prepare_notice(batch, error).await;
        self.0.insert(first.key.clone(), notice.clone());
        notice
    }
}

/// Notifies observers of failed turns, and dispatches notices to users.
pub(crate) struct NoticeDispatcher {
    pub(crate) hooks: HookRuntime,
    pub(crate) turn_pipeline: Arc<TurnPipeline<Orchestrator>>,
    pub(crate) bindings: Arc<BindingStore>,
}

impl NoticeDispatcher {
    /// Notifies the observers of the end of orphaned events and dispatches their notice. `batch` is `None` if none of
    /// the events can be read.
    async fn prepare_notice(&self, batch: Option<&TurnBatch>, error: &TurnError) -> PreparedNotice {
        let (text, effects) = self.notify_observers(batch, error).await;
        let notice = match (batch, text) {
            (Some(batch), Some(text)) => self.dispatch_notice(batch, &text).await,
            _ => PreparedNotice::default(),
        };
        let effects = match batch {
            Some(batch) => self.prepare_effects(batch, effects).await,
            None => PreparedEffects::default(),
        };
        PreparedNotice { text: notice.text.or_else(|| Some(error.public_message())), effects, ..notice }
    }

    /// Notifies the observers of the end of events without a reply, and returns the notice that they request for the
    /// user, and the effects that they request. `batch` is `None` if none of the events can be read.
    pub(crate) async fn notify_observers(
        &self,
        batch: Option<&TurnBatch>,
        error: &TurnError,
    ) -> (Option<String>, Vec<HookEffect>) {
        let notice = NoticeRequest::default();
        let turn = batch.map_or_else(HookTurn::none, |batch| HookTurn::new(batch.lead.session.clone(), None));
        let inbound = batch.map(|batch| batch.inbound.clone());
        self.hooks.notify_error(ErrorStage::Turn, error.to_report(), inbound, &notice, &turn).await;
        (batch.and_then(|_| notice.text().map(str::to_owned)), turn.close())
    }

    /// Prepares the effects that hooks requested, once for all attempts to commit them. Messages are routed and dispatched
    /// like replies; one that the hooks fail to dispatch is not sent.
    pub(crate) async fn prepare_effects(&self, batch: &TurnBatch, effects: Vec<HookEffect>) -> PreparedEffects {
        let mut prepared = PreparedEffects::default();
        for HookEffect { plugin, action } in effects {
            match action {
                HookAction::Note { name, data } => {
                    prepared.push_entry(EntryDraft::event(&name, data), &plugin);
                }
                HookAction::Anchor { name, state } => {
                    for entry in EntryDraft::handoff(&name, &state) {
                        prepared.push_entry(entry, &plugin);
                    }
                }
                HookAction::Message(message) => {
                    let Some(outbound) = self.route_notice(*message, batch).await else { continue };
                    match self.turn_pipeline.dispatch_outbound(&batch.inbound, outbound.clone()).await {
                        Ok(dispatched) => {
                            prepared.push_entry(dispatch_report_entry(&dispatched), &plugin);
                            prepared.outbounds.extend(dispatched.is_staged.then_some(outbound));
                        }
                        Err(error) => tracing::warn!(%plugin, %error, "the message of a hook is not sent"),
                    }
                }
            }
        }
        prepared
    }

    /// Dispatches a notice like a reply. A failure of the hooks is logged, and the notice is sent without them.
    pub(crate) async fn dispatch_notice(&self, batch: &TurnBatch, text: &str) -> PreparedNotice {
        let notice = PreparedNotice { text: Some(text.to_owned()), ..PreparedNotice::default() };
        let outbound = OutboundMessage::notice(&batch.inbound, batch.lead.session.clone(), text.to_owned());
        let Some(outbound) = self.route_notice(outbound, batch).await else { return notice };
        match self.turn_pipeline.dispatch_outbound(&batch.inbound, outbound.clone()).await {
            Ok(dispatched) => PreparedNotice {
                outbound: dispatched.is_staged.then_some(outbound),
                dispatch_entry: Some(dispatch_report_entry(&dispatched)),
                ..notice
            },
            Err(error) => {
                tracing::warn!(%error, "the hooks failed to dispatch a notice; sending it without them");
                PreparedNotice { outbound: Some(outbound), ..notice }
            }
        }
    }

    /// Routes a notice about events that may have had no turn in this process.
    async fn route_notice(&self, outbound: OutboundMessage, batch: &TurnBatch) -> Option<OutboundMessage> {
        let lead = &batch.lead;
        let binding = if let Some(binding) = &lead.binding {
            Some(Arc::clone(binding))
        } else {
            let resolved = self.bindings.resolve(&lead.inbound, lead.own_binding.as_ref()).await;
            resolved.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read the binding of an event; its notice goes to the event's own chat");
                None
            })
        };
        route_outbound(outbound, &batch.inbound, binding.as_ref().map(|binding| &binding.delivery_policy))
    }
}

impl PreparedEffects {
    /// Adds an entry, with its author.
    fn push_entry(&mut self, entry: EntryDraft, plugin: &PluginName) {
        self.entries.push(entry.with_meta(meta_keys::PLUGIN, serde_json::json!(plugin)));
    }
}

/// The entry that records for each plugin of the dispatch whether it sent or staged the message.
pub(crate) fn dispatch_report_entry(dispatched: &DispatchReport) -> EntryDraft {
    let votes = dispatched.answers.iter().map(|(plugin, sent)| DispatchVote { plugin: plugin.clone(), sent: *sent });
    let dispatch = OutboundDispatch {
        kind: dispatched.outbound.kind,
        channel: dispatched.outbound.channel.clone(),
        chat_id: dispatched.outbound.chat_id.clone(),
        sent: votes.collect(),
    };
    TapeEvent::Outbound(dispatch).into()
}
