//! Two hosts on one database, like two processes: one turn per session across both (X4), and no effect twice (X1).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::Gateway as _;
use capstan_hooks::points::{RenderOutbound, ResolveSession, RunModel};
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Event, EventKey, Outcome};
use capstan_tape::{Batch, EntryKind, Fact, RunStatus, TapeSlice};
use capstan_testing::ReplyBarrier;
use futures::FutureExt as _;

use crate::sessions::support::{blocking_echo_plugin, format_outcome, hold_tool_plugin};
use crate::sessions::test_channel::TestChannel;

fn released_barrier() -> ReplyBarrier {
    let barrier = ReplyBarrier::new();
    barrier.release();
    barrier
}

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

/// Number of running turns, and its maximum.
#[derive(Default)]
struct TurnCounter {
    running: AtomicUsize,
    peak: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn x04_a_session_has_one_turn_at_a_time_across_two_hosts() {
    let counter = Arc::new(TurnCounter::default());
    let counting_plugin = || {
        let counter = Arc::clone(&counter);
        ClosurePlugin::new("counting", move |hooks| {
            let counter = Arc::clone(&counter);
            hooks.on(RunModel, move |prompt: PromptContent| {
                let counter = Arc::clone(&counter);
                async move {
                    let now = counter.running.fetch_add(1, Ordering::SeqCst) + 1;
                    counter.peak.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    counter.running.fetch_sub(1, Ordering::SeqCst);
                    Ok(Some(prompt.text()))
                }
            });
        })
    };
    let environment = TestEnvironment::on_disk();
    let first_host = environment.host().channel(&phone_channel()).plugin(counting_plugin()).start().await;
    let second_host =
        environment.host_with_own_connection().channel(&phone_channel()).plugin(counting_plugin()).start().await;
    let events: Vec<Event> = (0..24).map(|n| Event::message("phone", "1", format!("{n}"))).collect();
    let turns = events
        .iter()
        .enumerate()
        .map(|(n, event)| (if n % 2 == 0 { &first_host } else { &second_host }).serve_in_background(event.clone()));
    for served in futures::future::join_all(turns).await {
        let served = served.unwrap();
        assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    }
    assert_eq!(counter.peak.load(Ordering::SeqCst), 1);
    environment.assert_settled().await;
    first_host.stop().await.unwrap();
    second_host.stop().await.unwrap();
}

#[tokio::test]
async fn x04_the_second_host_waits_for_the_turn_of_the_first() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::on_disk();
    let first_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let second_host = environment
        .host_with_own_connection()
        .channel(&phone_channel())
        .plugin(blocking_echo_plugin(&released_barrier()))
        .start()
        .await;
    let first = first_host.serve_in_background(Event::message("phone", "1", "one"));
    barrier.reached().await;
    let two = Event::message("phone", "1", "two");
    second_host.submit_and_wait(&two).await;
    assert_eq!(environment.outcome(&two).await, None);
    let other_session = second_host.serve(Event::message("phone", "2", "hi")).await.unwrap();
    assert_eq!(other_session.output, "re: hi", "other sessions do not wait");
    assert_eq!(environment.outcome(&two).await, None);
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    assert_eq!(second_host.serve(two).await.unwrap().output, "re: two");
    environment.assert_settled().await;
    first_host.stop().await.unwrap();
    second_host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x04_an_event_that_exceeds_the_session_wait_timeout_fails_as_busy() {
    let (barrier, channel) = (ReplyBarrier::new(), phone_channel());
    let environment = TestEnvironment::in_memory();
    let first_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let second_host =
        environment.host().channel(&channel).plugin(blocking_echo_plugin(&released_barrier())).start().await;
    let first = first_host.serve_in_background(Event::message("phone", "1", "one"));
    barrier.reached().await;
    let started = tokio::time::Instant::now();
    let served = second_host.serve(Event::message("phone", "1", "two")).await.unwrap();
    assert_eq!(served.error.unwrap().code(), "session-busy");
    assert!(matches!(served.outcome, Some(Outcome::Failed { .. })));
    assert_eq!(started.elapsed().as_secs(), 60, "the configured timeout of the host");
    assert_eq!(channel.sent().len(), 1, "one notice: {:?}", channel.sent());
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    environment.assert_settled().await;
    first_host.stop().await.unwrap();
    second_host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x01_a_caller_refused_by_a_busy_session_can_send_the_same_event_again() {
    let (barrier, environment) = (ReplyBarrier::new(), TestEnvironment::in_memory());
    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let first_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let second_host = environment.host().channel(&desk).plugin(blocking_echo_plugin(&released_barrier())).start().await;
    let first =
        first_host.serve_in_background(Event { session_id: Some("s".into()), ..Event::message("phone", "1", "one") });
    barrier.reached().await;
    let two = Event { session_id: Some("s".into()), ..Event::message("desk", "1", "two") };
    let started = tokio::time::Instant::now();
    let refused = second_host.submit(two.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "session-busy");
    assert_eq!(started.elapsed().as_secs(), 60, "the configured timeout of the host");
    assert_eq!(environment.store().inbox_record(&EventKey::from(&two)).await.unwrap(), None, "the event is not stored");
    let again = second_host.submit(two.clone().into());
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    again.await.unwrap();
    let answer = desk.wait_for_answer(&two.event_id).await;
    assert_eq!((format_outcome(&answer.outcome).as_str(), answer.is_duplicate), ("replied: re: two", false));
    environment.assert_settled().await;
    first_host.stop().await.unwrap();
    second_host.stop().await.unwrap();
}

#[tokio::test]
async fn x02_an_event_of_a_live_process_is_not_adopted_by_another() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::on_disk();
    let first_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let (one, two) = (Event::message("phone", "1", "one"), Event::message("phone", "1", "two"));
    let first = first_host.serve_in_background(one.clone());
    barrier.reached().await;
    first_host.submit_and_wait(&two).await;
    let owners = || async {
        let events = environment.store().in_flight_events(None).collect().await.unwrap();
        events.into_iter().map(|event| (event.owner, event.adoptions)).collect::<Vec<_>>()
    };
    let before = owners().await;
    assert_eq!(before.len(), 2);
    let second_host = environment
        .host_with_own_connection()
        .channel(&phone_channel())
        .plugin(blocking_echo_plugin(&released_barrier()))
        .start()
        .await;
    second_host.listen(&["phone".into()]).await;
    assert_eq!(owners().await, before);
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    assert_eq!(second_host.serve(two).await.unwrap().output, "re: two", "the other host reports the outcome");
    assert_eq!(environment.store().run_page(None, 10).await.unwrap().len(), 2, "each event ran once");
    environment.assert_settled().await;
    second_host.stop().await.unwrap();
    first_host.stop().await.unwrap();
}

#[tokio::test]
async fn x02_a_live_run_without_a_recorded_end_is_not_recovered_as_orphaned() {
    let (hold, ending) = (ReplyBarrier::new(), ReplyBarrier::new());
    let rendering = {
        let ending = ending.clone();
        ClosurePlugin::new("rendering", move |hooks| {
            let ending = ending.clone();
            hooks.on(RenderOutbound, move |message: InboundEvent| {
                let ending = ending.clone();
                async move {
                    if message.input.command_line().is_some() {
                        ending.wait_for_release().await;
                    }
                    Ok(None)
                }
            });
        })
    };
    let environment = TestEnvironment::in_memory();
    let first_host =
        environment.host().channel(&phone_channel()).plugin(hold_tool_plugin(&hold)).plugin(rendering).start().await;
    let one = first_host.serve_in_background(Event::message("phone", "1", "[[tool:hold]]"));
    hold.reached().await;
    let command = first_host.serve_in_background(Event::message("phone", "1", ",tape.info"));
    ending.reached().await;
    // The model stage of the command has ended without being recorded, and a process dies with an event of the session.
    let second_host = environment.host().channel(&phone_channel()).start().await;
    let orphaned = Event::message("phone", "1", "orphaned");
    second_host.submit_and_wait(&orphaned).await;
    second_host.stop().await.unwrap();
    hold.release();
    one.await.unwrap();
    first_host.listen(&["phone".into()]).await;
    while environment.outcome(&orphaned).await.is_none() {
        tokio::task::yield_now().await;
    }
    let running = environment.store().open_runs().collect().await.unwrap();
    assert_eq!(running.len(), 1, "the command is still running: {running:?}");
    ending.release();
    let run_id = command.await.unwrap().run_id.unwrap();
    assert_eq!(environment.store().run(&run_id).await.unwrap().unwrap().status, RunStatus::Completed);
    first_host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn g10_a_cancel_request_of_another_process_cancels_the_run() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let (event, other) = (Event::message("phone", "1", "one"), Event::message("phone", "2", "two"));
    let turn = host.serve_in_background(event.clone());
    barrier.reached().await;
    host.submit_and_wait(&other).await;
    while environment.store().open_runs().collect().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let runs = environment.store().open_runs().collect().await.unwrap();
    let run_id = runs.iter().find(|run| run.event == EventKey::from(&event)).unwrap().run_id.clone();
    let mut batch = Batch::new();
    batch.push(Fact::RequestCancel { run_id: run_id.clone() });
    environment.store().commit(batch).await.unwrap();
    assert_eq!(turn.await.unwrap().outcome, Some(Outcome::Cancelled));
    assert_eq!(environment.store().run(&run_id).await.unwrap().unwrap().status, RunStatus::Cancelled);
    assert_eq!(environment.outcome(&other).await, None, "the other run continues");
    barrier.release();
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn g01_events_of_a_session_are_accepted_in_the_order_of_the_calls() {
    const EVENT_COUNT: usize = 200;
    // Earlier events take longer to resolve their session.
    let slow = ClosurePlugin::new("slow", |hooks| {
        hooks.on(ResolveSession, |message: InboundEvent| async move {
            let number: usize = message.input.plain_text().parse().unwrap();
            for _ in number..EVENT_COUNT {
                tokio::task::yield_now().await;
            }
            Ok(None)
        });
    });
    let environment = TestEnvironment::on_disk();
    let builder =
        environment.host().channel(&phone_channel()).plugin(slow).plugin(blocking_echo_plugin(&released_barrier()));
    let host = builder.options(|options| options.max_queued_events = EVENT_COUNT).start().await;
    let events: Vec<Event> = (0..EVENT_COUNT).map(|n| Event::message("phone", "1", n.to_string())).collect();
    let mut calls: Vec<_> = events.iter().map(|event| host.submit(event.clone().into())).collect();
    calls.reverse();
    for accepted in futures::future::join_all(calls).await {
        accepted.unwrap();
    }
    let tape = host.tapes().list().await.unwrap().remove(0).name;
    let accepted = async || -> Vec<String> {
        let entries =
            host.tapes().read(&tape, &TapeSlice { kinds: vec![EntryKind::Event], ..TapeSlice::all() }).await.unwrap();
        let accepted = entries.iter().filter(|entry| entry.name() == Some("event.accepted"));
        accepted.map(|entry| entry.payload["data"]["event"]["input"]["text"].as_str().unwrap().to_owned()).collect()
    };
    let expected: Vec<String> = (0..EVENT_COUNT).map(|n| n.to_string()).collect();
    assert_eq!(accepted().await, expected);
    for event in &events {
        let served = host.serve(event.clone()).await.unwrap();
        assert_eq!(served.output, format!("re: {}", event.input.plain_text()));
    }
    let messages =
        host.tapes().read(&tape, &TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::all() }).await.unwrap();
    let users = messages.iter().filter(|entry| entry.payload["role"] == "user");
    let texts: Vec<String> = users.map(|entry| entry.payload["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, expected, "turns have the same order");
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x01_a_repeated_event_gets_the_same_outcome_from_either_host() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::on_disk();
    let first_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let second_host = environment
        .host_with_own_connection()
        .channel(&phone_channel())
        .plugin(blocking_echo_plugin(&released_barrier()))
        .start()
        .await;
    let event = Event::message("phone", "1", "one");
    let first = first_host.serve_in_background(event.clone());
    barrier.reached().await;
    let repeated = [first_host.serve_in_background(event.clone()), second_host.serve_in_background(event.clone())];
    barrier.release();
    let first = first.await.unwrap();
    assert_eq!((first.output.as_str(), first.is_duplicate), ("re: one", false));
    for served in repeated {
        let served = served.await.unwrap();
        assert!(served.is_duplicate);
        assert_eq!(
            (&served.outcome, &served.run_id, &served.outbounds),
            (&first.outcome, &first.run_id, &first.outbounds)
        );
    }
    let after = second_host.serve(event).await.unwrap();
    assert_eq!((after.is_duplicate, &after.outcome), (true, &first.outcome));
    assert_eq!(environment.store().run_page(None, 10).await.unwrap().len(), 1);
    environment.assert_settled().await;
    first_host.stop().await.unwrap();
    second_host.stop().await.unwrap();
}

#[tokio::test]
async fn x03_an_orphaned_event_is_settled_by_the_host_that_receives_it_again() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::on_disk();
    let desk = || Arc::new(TestChannel::with_waiting_callers("desk"));
    let first_host = environment.host().channel(&desk()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let (one, two) = (Event::message("desk", "1", "one"), Event::message("desk", "1", "two"));
    first_host.submit_and_wait(&one).await;
    barrier.reached().await;
    first_host.submit_and_wait(&two).await;
    let stopping = tokio::spawn(first_host.stop());
    barrier.release();
    stopping.await.unwrap().unwrap();
    assert_eq!(environment.outcome(&two).await, None, "its turn had not started");

    // This host does not listen, so that only the repeated event triggers the recovery.
    let second_host = environment
        .host_with_own_connection()
        .channel(&desk())
        .plugin(blocking_echo_plugin(&released_barrier()))
        .start()
        .await;
    let again = second_host.serve(two).await.unwrap();
    assert_eq!((again.is_duplicate, again.output.as_str()), (true, "re: two"));
    environment.assert_settled().await;
    second_host.stop().await.unwrap();
}

#[tokio::test]
async fn x01_an_event_of_a_disconnected_source_is_settled_or_not_accepted() {
    let environment = TestEnvironment::on_disk();
    let host =
        environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&released_barrier())).start().await;
    let mut accepted = 0;
    for max_polls in [1, 1, 1, 2, 2, 3, 3, 4] {
        let event = Event::message("phone", "1", format!("gone after {max_polls}"));
        let mut call = host.submit(event.clone().into());
        let mut polls = 0;
        // The call is dropped after this number of polls.
        std::future::poll_fn(|context| {
            polls += 1;
            match call.poll_unpin(context) {
                Poll::Pending if polls < max_polls => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
        drop(call);
        // Later events of the session are not blocked.
        assert_eq!(host.serve(Event::message("phone", "1", "next")).await.unwrap().output, "re: next");
        if environment.store().inbox_record(&EventKey::from(&event)).await.unwrap().is_some() {
            accepted += 1;
            let ended = tokio::time::timeout(Duration::from_mins(1), host.serve(event)).await;
            assert!(matches!(ended.expect("the event is settled").unwrap().outcome, Some(Outcome::Replied { .. })));
        }
    }
    assert!(accepted > 0);
    environment.assert_settled().await;
    host.stop().await.unwrap();
}
