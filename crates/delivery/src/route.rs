//! Routes of replies: the delivery policy of a binding decides where messages about an event go.

use std::borrow::Cow;

use capstan_hooks::InboundEvent;
use capstan_protocol::{DeliveryPolicy, DeliveryTarget, Event, OutboundMessage};

/// Routes a message about an event; `None` where nothing is sent. A message that is meant for elsewhere than the event's
/// own place keeps its route.
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

/// The event as it is shown to the channel that its reply goes to; `None` where nothing is shown.
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

/// Where an answer goes that does not go where the event says: an event that names a channel goes before the policy.
fn redirected_delivery(event: &Event, policy: &DeliveryPolicy) -> Option<DeliveryTarget> {
    let names_none = policy.output_channel.is_none() && policy.chat_id.is_none();
    if names_none || event.delivery.output_channel.is_some() {
        return None;
    }
    let delivery = DeliveryTarget {
        output_channel: policy.output_channel.clone(),
        chat_id: policy.chat_id.clone().or_else(|| event.delivery.chat_id.clone()),
        // A message of one chat is not known in another.
        reply_to: None,
    };
    let moved = |event: &Event| (event.channel(), event.chat_id());
    let is_moved = moved(&Event { delivery: delivery.clone(), ..event.clone() }) != moved(event);
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

    /// Where a reply to the event goes, and to which message.
    fn reply_route(event: &Event, policy: Option<&DeliveryPolicy>) -> Option<(String, String, Option<String>)> {
        let outbound = route_outbound(OutboundMessage::reply_to(event, "s".into(), "re"), event, policy)?;
        Some((outbound.channel.to_string(), outbound.chat_id.to_string(), outbound.reply_to))
    }

    fn expected_route(channel: &str, chat: &str, reply_to: Option<&str>) -> (String, String, Option<String>) {
        (channel.to_owned(), chat.to_owned(), reply_to.map(str::to_owned))
    }

    #[test]
    fn g02_an_answer_goes_where_the_policy_says_unless_the_event_says_where() {
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
        let mut said = sample_event();
        said.delivery.output_channel = Some("desk".into());
        assert_eq!(reply_route(&said, Some(&pager())).unwrap(), expected_route("desk", "family", Some("7")));
        let same = DeliveryPolicy { output_channel: Some("phone".into()), ..DeliveryPolicy::default() };
        assert_eq!(
            reply_route(&sample_event(), Some(&same)).unwrap(),
            expected_route("phone", "family", Some("7")),
            "that is where it goes anyway"
        );
    }

    #[test]
    fn g02_a_message_for_elsewhere_keeps_its_way() {
        let policy = DeliveryPolicy { output_channel: Some("pager".into()), ..DeliveryPolicy::default() };
        let event = sample_event();
        let elsewhere =
            OutboundMessage { channel: "desk".into(), ..OutboundMessage::reply_to(&event, "s".into(), "re") };
        assert_eq!(route_outbound(elsewhere.clone(), &event, Some(&policy)), Some(elsewhere));
    }

    #[test]
    fn g02_where_nothing_is_sent_nothing_is_shown() {
        let inbound = InboundEvent::new(sample_event());
        let silent = DeliveryPolicy { silent: true, ..DeliveryPolicy::default() };
        assert_eq!(reply_route(&inbound, Some(&silent)), None);
        assert!(streaming_target(&inbound, Some(&silent)).is_none());
        let still = DeliveryPolicy { no_stream: true, ..DeliveryPolicy::default() };
        assert!(reply_route(&inbound, Some(&still)).is_some() && streaming_target(&inbound, Some(&still)).is_none());
        let moved = DeliveryPolicy { output_channel: Some("pager".into()), ..DeliveryPolicy::default() };
        assert_eq!(streaming_target(&inbound, Some(&moved)).unwrap().channel().as_str(), "pager");
    }
}
