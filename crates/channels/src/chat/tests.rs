use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel as _, ChannelErrorKind};
use capstan_protocol::{Event, OutboundMessage, SessionId, StreamEvent};

use super::{ChatChannel, ChatUpdate};

fn session_event(session: &str, text: &str) -> Event {
    let mut event = Event::message("cli", "local", text);
    event.session_id = Some(SessionId::new(session));
    event
}

#[tokio::test]
async fn x02_recovered_event_is_announced_once() {
    let (chat, mut updates) = ChatChannel::new(SessionId::new("mine"));
    let own = InboundEvent::new(chat.message_event("local", "hello".to_owned()));
    let recovered = InboundEvent::new(session_event("mine", "orphan"));
    for event in [&own, &recovered, &recovered] {
        chat.on_stream_event(&StreamEvent::text("x"), event).await.unwrap();
    }
    let mut kinds = Vec::new();
    while let Ok(update) = updates.try_recv() {
        kinds.push(match update {
            ChatUpdate::Recovered { text } => text,
            ChatUpdate::Event { .. } => "event".to_owned(),
            ChatUpdate::Message(_) => "message".to_owned(),
        });
    }
    assert_eq!(kinds, ["event", "orphan", "event", "event"]);
}

#[tokio::test]
async fn x03_event_of_another_session_is_not_shown_and_fails_permanently() {
    let (chat, mut updates) = ChatChannel::new(SessionId::new("mine"));
    let other = session_event("other", "hello");
    chat.on_stream_event(&StreamEvent::text("x"), &InboundEvent::new(other.clone())).await.unwrap();
    let message = OutboundMessage::reply_to(&other, SessionId::new("other"), "reply");
    assert_eq!(chat.send(&message).await.unwrap_err().kind, ChannelErrorKind::Permanent);
    assert!(updates.try_recv().is_err());
}

#[tokio::test]
async fn x03_ended_chat_fails_instead_of_waiting() {
    let (chat, updates) = ChatChannel::new(SessionId::new("mine"));
    drop(updates);
    let message = OutboundMessage::reply_to(&session_event("mine", "hello"), SessionId::new("mine"), "reply");
    assert_eq!(chat.send(&message).await.unwrap_err().kind, ChannelErrorKind::Permanent);
}
