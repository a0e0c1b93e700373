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
async fn x02_an_event_that_was_not_said_here_is_told_to_be_taken_up_once() {
    let (chat, mut told) = ChatChannel::new(SessionId::new("mine"));
    let (own, left) = (
        InboundEvent::new(chat.message_event("local", "hello".to_owned())),
        InboundEvent::new(session_event("mine", "left")),
    );
    for event in [&own, &left, &left] {
        chat.on_stream_event(&StreamEvent::text("x"), event).await.unwrap();
    }
    let mut kinds = Vec::new();
    while let Ok(told) = told.try_recv() {
        kinds.push(match told {
            ChatUpdate::Recovered { text } => text,
            ChatUpdate::Event { .. } => "event".to_owned(),
            ChatUpdate::Message(_) => "message".to_owned(),
        });
    }
    assert_eq!(kinds, ["event", "left", "event", "event"]);
}

#[tokio::test]
async fn x03_what_belongs_to_another_session_is_not_shown_and_never_will_be() {
    let (chat, mut told) = ChatChannel::new(SessionId::new("mine"));
    let other = session_event("other", "hello");
    chat.on_stream_event(&StreamEvent::text("x"), &InboundEvent::new(other.clone())).await.unwrap();
    let message = OutboundMessage::reply_to(&other, SessionId::new("other"), "reply");
    assert_eq!(chat.send(&message).await.unwrap_err().kind, ChannelErrorKind::Permanent);
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn x03_a_chat_that_has_ended_fails_to_show_instead_of_waiting() {
    let (chat, told) = ChatChannel::new(SessionId::new("mine"));
    drop(told);
    let message = OutboundMessage::reply_to(&session_event("mine", "hello"), SessionId::new("mine"), "reply");
    assert_eq!(chat.send(&message).await.unwrap_err().kind, ChannelErrorKind::Permanent);
}
