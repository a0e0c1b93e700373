use capstan_hooks::Inbound;
use capstan_hooks::contracts::{Channel as _, Fate};
use capstan_protocol::{Event, Outbound, SessionId, StreamEvent};

use super::{Chat, Told};

fn of_session(session: &str, text: &str) -> Event {
    let mut event = Event::message("cli", "local", text);
    event.session_id = Some(SessionId::new(session));
    event
}

#[tokio::test]
async fn x02_an_event_that_was_not_said_here_is_told_to_be_taken_up_once() {
    let (chat, mut told) = Chat::new(SessionId::new("mine"));
    let (own, left) = (Inbound::new(chat.event("local", "hello".to_owned())), Inbound::new(of_session("mine", "left")));
    for event in [&own, &left, &left] {
        chat.on_event(&StreamEvent::text("x"), event).await.unwrap();
    }
    let mut kinds = Vec::new();
    while let Ok(told) = told.try_recv() {
        kinds.push(match told {
            Told::TakenUp { text } => text,
            Told::Event { .. } => "event".to_owned(),
            Told::Message(_) => "message".to_owned(),
        });
    }
    assert_eq!(kinds, ["event", "left", "event", "event"]);
}

#[tokio::test]
async fn x03_what_belongs_to_another_session_is_not_shown_and_never_will_be() {
    let (chat, mut told) = Chat::new(SessionId::new("mine"));
    let other = of_session("other", "hello");
    chat.on_event(&StreamEvent::text("x"), &Inbound::new(other.clone())).await.unwrap();
    let message = Outbound::reply_to(&other, SessionId::new("other"), "reply");
    assert_eq!(chat.send(&message).await.unwrap_err().fate, Fate::Hopeless);
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn x03_a_chat_that_has_ended_fails_to_show_instead_of_waiting() {
    let (chat, told) = Chat::new(SessionId::new("mine"));
    drop(told);
    let message = Outbound::reply_to(&of_session("mine", "hello"), SessionId::new("mine"), "reply");
    assert_eq!(chat.send(&message).await.unwrap_err().fate, Fate::Hopeless);
}
