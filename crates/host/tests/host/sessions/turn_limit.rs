//! Limit of running turns (T13): the others wait in order of arrival.

use std::sync::Arc;

use capstan_host::testing::TestEnvironment;
use capstan_protocol::Event;
use capstan_testing::ReplyBarrier;

use crate::sessions::support::blocking_echo_plugin;
use crate::sessions::test_channel::TestChannel;

#[tokio::test]
async fn t13_sessions_get_their_turns_in_order_of_arrival() {
    let (barrier, phone) = (ReplyBarrier::new(), Arc::new(TestChannel::new("phone")));
    let environment = TestEnvironment::in_memory();
    let host = environment
        .host()
        .channel(&phone)
        .plugin(blocking_echo_plugin(&barrier))
        .options(|options| options.max_active_turns = 1)
        .start()
        .await;
    let chats = ["1", "1", "2", "3", "1"];
    let events: Vec<Event> =
        chats.iter().enumerate().map(|(n, chat)| Event::message("phone", *chat, format!("m{n}"))).collect();
    for event in &events {
        host.submit_and_wait(event).await;
    }
    barrier.reached().await;
    barrier.release();
    for event in &events {
        environment.wait_until_settled(event).await;
    }
    environment.assert_settled().await;
    host.stop().await.unwrap();
    // A session that has had its turn waits behind those that have not.
    assert_eq!(phone.sent(), ["1: re: m0", "2: re: m2", "3: re: m3", "1: re: m1", "1: re: m4"]);
}

#[tokio::test(start_paused = true)]
async fn x01_event_that_waits_for_a_turn_stays_in_the_store_when_the_host_stops() {
    let (barrier, phone) = (ReplyBarrier::new(), Arc::new(TestChannel::new("phone")));
    let environment = TestEnvironment::in_memory();
    let start = || {
        let builder = environment.host().channel(&phone).plugin(blocking_echo_plugin(&barrier));
        builder.options(|options| options.max_active_turns = 1).start()
    };
    let host = start().await;
    let events = ["1", "2"].map(|chat| Event::message("phone", chat, "hello"));
    for event in &events {
        host.submit_and_wait(event).await;
    }
    barrier.reached().await;
    let stopping = tokio::spawn(host.stop());
    tokio::task::yield_now().await;
    barrier.release();
    stopping.await.unwrap().unwrap();
    assert_eq!(environment.outcome(&events[1]).await, None, "no turn begins while the host stops");
    let host = start().await;
    host.listen(&["phone".into()]).await;
    environment.wait_until_settled(&events[1]).await;
    host.stop().await.unwrap();
    environment.assert_settled().await;
}
