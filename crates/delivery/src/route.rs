//! Routes of replies: the delivery policy of a binding decides the destination of messages about an event.

use std::borrow::Cow;

use capstan_hooks::InboundEvent;
use capstan_protocol::{DeliveryPolicy, DeliveryTarget, Event, OutboundMessage};

/// Routes a message about an event; `None` if the policy suppresses it. A message addressed to another chat than that
/// of the event keeps its route.
pub fn route_outbound(
    outbound: OutboundMessage,
    inbound: &Event,
    policy: Option<&DeliveryPolicy>,
) -> Option<OutboundMessage> {
    let Some(policy) = policy else { return Some(outbound) };
    if policy.silent {
        return None;
    }
    match redirected_delivery(inbound, policy) {
        Some(delivery) if outbound.channel == inbound.channel() && outbound.chat_id == inbound.chat_id() => {
            let channel = delivery.output_channel.unwrap_or(outbound.channel);
            let chat_id = delivery.chat_id.unwrap_or(outbound.chat_id);
            Some(OutboundMessage { channel, chat_id, reply_to: delivery.reply_to, ..outbound })
        }
        _ => Some(outbound),
    }
}

/// The event as it is shown to the channel of its reply; `None` if nothing is streamed.
pub(crate) fn streaming_target<'a>(
    inbound: &'a InboundEvent,
    policy: Option<&DeliveryPolicy>,
) -> Option<Cow<'a, InboundEvent>> {
    let Some(policy) = policy else { return Some(Cow::Borrowed(inbound)) };
    if policy.silent || policy.no_stream {
        return None;
    }
    Some(
        redirected_delivery(inbound, policy)
            .map_or(Cow::Borrowed(inbound), |delivery| Cow::Owned(inbound.with_delivery(delivery))),
    )
}

/// The destination of a reply that the policy redirects. A channel named by the event takes precedence over the policy.
fn redirected_delivery(event: &Event, policy: &DeliveryPolicy) -> Option<DeliveryTarget> {
    let has_no_target = policy.output_channel.is_none() && policy.chat_id.is_none();
    if has_no_target || event.delivery.output_channel.is_some() {
        return None;
    }
    let delivery = DeliveryTarget {
        output_channel: policy.output_channel.clone(),
        chat_id: policy.chat_id.clone().or_else(|| event.delivery.chat_id.clone()),
        // A message id of one chat has no meaning in another.
        reply_to: None,
    };
    let address = |event: &Event| (event.channel(), event.chat_id());
    let is_moved = address(&Event { delivery: delivery.clone(), ..event.clone() }) != address(event);
    is_moved.then_some(delivery)
}

#[cfg(test)]
mod tests {
    use capstan_hooks::InboundEvent;
    use capstan_protocol::{DeliveryPolicy, Event, OutboundMessage};

    use super::{route_outbound, streaming_target};

    fn sample_event() -> Event {
        let mut event = Event::message("phone", "family", "hi");
        event.delivery.reply_to = Some("7".to_owned());
        event
    }

    /// Channel and chat of a reply to the event, and the message it refers to.
    fn reply_route(event: &Event, policy: Option<&DeliveryPolicy>) -> Option<(String, String, Option<String>)> {
        let outbound = route_outbound(OutboundMessage::reply_to(event, "s".into(), "re"), event, policy)?;
        Some((outbound.channel.to_string(), outbound.chat_id.to_string(), outbound.reply_to))
    }

    fn expected_route(channel: &str, chat: &str, reply_to: Option<&str>) -> (String, String, Option<String>) {
        (channel.to_owned(), chat.to_owned(), reply_to.map(str::to_owned))
    }

    #[test]
    fn g02_a_reply_follows_the_policy_unless_the_event_names_a_channel() {
        let pager = || DeliveryPolicy { output_channel: Some("pager".into()), ..DeliveryPolicy::default() };
        let boss = || DeliveryPolicy { chat_id: Some("boss".into()), ..DeliveryPolicy::default() };
        assert_eq!(reply_route(&sample_event(), None).unwrap(), expected_route("phone", "family", Some("7")));
        assert_eq!(
            reply_route(&sample_event(), Some(&DeliveryPolicy::default())).unwrap(),
            expected_route("phone", "family", Some("7"))
        );
        assert_eq!(reply_route(&sample_event(), Some(&pager())).unwrap(), expected_route("pager", "family", None));
        assert_eq!(reply_route(&sample_event(), Some(&boss())).unwrap(), expected_route("phone", "boss", None));
        let both = DeliveryPolicy { chat_id: Some("boss".into()), ..pager() };
        assert_eq!(reply_route(&sample_event(), Some(&both)).unwrap(), expected_route("pager", "boss", None));
        let mut with_channel = sample_event();
        with_channel.delivery.output_channel = Some("desk".into());
        assert_eq!(reply_route(&with_channel, Some(&pager())).unwrap(), expected_route("desk", "family", Some("7")));
        let same = DeliveryPolicy { output_channel: Some("phone".into()), ..DeliveryPolicy::default() };
        assert_eq!(
            reply_route(&sample_event(), Some(&same)).unwrap(),
            expected_route("phone", "family", Some("7")),
            "the policy names the channel of the event"
        );
    }

    #[test]
    fn g02_a_message_to_another_channel_keeps_its_route() {
        let policy = DeliveryPolicy { output_channel: Some("pager".into()), ..DeliveryPolicy::default() };
        let event = sample_event();
        let elsewhere =
            OutboundMessage { channel: "desk".into(), ..OutboundMessage::reply_to(&event, "s".into(), "re") };
        assert_eq!(route_outbound(elsewhere.clone(), &event, Some(&policy)), Some(elsewhere));
    }

    #[test]
    fn g02_a_silent_policy_sends_and_streams_nothing() {
        let inbound = InboundEvent::new(sample_event());
        let silent = DeliveryPolicy { silent: true, ..DeliveryPolicy::default() };
        assert_eq!(reply_route(&inbound, Some(&silent)), None);
        assert!(streaming_target(&inbound, Some(&silent)).is_none());
        let no_stream = DeliveryPolicy { no_stream: true, ..DeliveryPolicy::default() };
        assert!(reply_route(&inbound, Some(&no_stream)).is_some());
        assert!(streaming_target(&inbound, Some(&no_stream)).is_none());
        let moved = DeliveryPolicy { output_channel: Some("pager".into()), ..DeliveryPolicy::default() };
        assert_eq!(streaming_target(&inbound, Some(&moved)).unwrap().channel().as_str(), "pager");
    }
}
