//! Two hosts on one database, as two processes have it: one turn per session over both (X4), and nothing done twice (X1).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use capstan::hooks::InboundEvent;
use capstan::hooks::args::PromptContent;
use capstan::hooks::contracts::Gateway as _;
use capstan::hooks::points::{RenderOutbound, ResolveSession, RunModel};
use capstan::protocol::{Event, EventKey, Outcome};
use capstan::tape::{Batch, EntryKind, Fact, RunStatus, TapeSlice};
use capstan_testing::ReplyBarrier;
use futures::FutureExt as _;

use crate::host_fixture::{
    HostFixture, boxed_plugin, format_outcome, gated_echo_plugin, hold_tool_plugin, serve_in_background, submit,
};
use crate::test_channel::TestChannel;

fn open_gate() -> ReplyBarrier {
    let barrier = ReplyBarrier::new();
    barrier.release();
    barrier
}

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

/// Counts how many turns go on, and how many did at most.
#[derive(Default)]
struct TurnCounter {
    running: AtomicUsize,
    peak: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn x04_a_session_has_one_turn_at_a_time_over_two_hosts() {
    let counted = Arc::new(TurnCounter::default());
    let counts = || {
        let counted = Arc::clone(&counted);
        boxed_plugin("counts", move |hooks| {
            let counted = Arc::clone(&counted);
            hooks.on(RunModel, move |prompt: PromptContent| {
                let counted = Arc::clone(&counted);
                async move {
                    let now = counted.running.fetch_add(1, Ordering::SeqCst) + 1;
                    counted.peak.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    counted.running.fetch_sub(1, Ordering::SeqCst);
                    Ok(Some(prompt.text()))
                }
            });
        })
    };
    let fixture = HostFixture::on_disk();
    let here = fixture.host_builder().channel(&phone_channel()).plugin(counts()).start().await;
    let there = fixture.second_host_builder().channel(&phone_channel()).plugin(counts()).start().await;
    let events: Vec<Event> = (0..24).map(|n| Event::message("phone", "1", format!("{n}"))).collect();
    let turns = events
        .iter()
        .enumerate()
        .map(|(n, event)| serve_in_background(if n % 2 == 0 { &here } else { &there }, event.clone()));
    for served in futures::future::join_all(turns).await {
        let served = served.unwrap();
        assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    }
    assert_eq!(counted.peak.load(Ordering::SeqCst), 1);
    fixture.assert_settled().await;
    here.stop().await.unwrap();
    there.stop().await.unwrap();
}

#[tokio::test]
async fn x04_the_second_host_waits_until_the_first_has_ended_its_turn() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::on_disk();
    let here = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let there =
        fixture.second_host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&open_gate())).start().await;
    let first = serve_in_background(&here, Event::message("phone", "1", "one"));
    barrier.reached().await;
    let two = Event::message("phone", "1", "two");
    submit(&there, &two).await;
    assert_eq!(fixture.outcome(&two).await, None);
    let elsewhere = there.serve(Event::message("phone", "2", "hi")).await.unwrap();
    assert_eq!(elsewhere.output, "re: hi", "another session does not wait");
    assert_eq!(fixture.outcome(&two).await, None);
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    assert_eq!(there.serve(two).await.unwrap().output, "re: two");
    fixture.assert_settled().await;
    here.stop().await.unwrap();
    there.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x04_who_waits_too_long_is_told_that_the_session_is_busy() {
    let (barrier, pager) = (ReplyBarrier::new(), phone_channel());
    let fixture = HostFixture::in_memory();
    let here = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let there = fixture.host_builder().channel(&pager).plugin(gated_echo_plugin(&open_gate())).start().await;
    let first = serve_in_background(&here, Event::message("phone", "1", "one"));
    barrier.reached().await;
    let waited = tokio::time::Instant::now();
    let served = there.serve(Event::message("phone", "1", "two")).await.unwrap();
    assert_eq!(served.error.unwrap().code(), "session-busy");
    assert!(matches!(served.outcome, Some(Outcome::Failed { .. })));
    assert_eq!(waited.elapsed().as_secs(), 60, "as long as the host is set to");
    assert_eq!(pager.sent().len(), 1, "the notice: {:?}", pager.sent());
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    fixture.assert_settled().await;
    here.stop().await.unwrap();
    there.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x01_a_caller_that_waits_too_long_for_another_process_can_send_the_same_event_again() {
    let (barrier, fixture) = (ReplyBarrier::new(), HostFixture::in_memory());
    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let here = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let there = fixture.host_builder().channel(&desk).plugin(gated_echo_plugin(&open_gate())).start().await;
    let first =
        serve_in_background(&here, Event { session_id: Some("s".into()), ..Event::message("phone", "1", "one") });
    barrier.reached().await;
    let two = Event { session_id: Some("s".into()), ..Event::message("desk", "1", "two") };
    let waited = tokio::time::Instant::now();
    let refused = there.submit(two.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "session-busy");
    assert_eq!(waited.elapsed().as_secs(), 60, "as long as the host is set to");
    assert_eq!(fixture.store().inbox_record(&EventKey::from(&two)).await.unwrap(), None, "nothing is kept");
    let again = there.submit(two.clone().into());
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    again.await.unwrap();
    let answer = desk.wait_for_answer(&two.event_id).await;
    assert_eq!((format_outcome(&answer.outcome).as_str(), answer.is_duplicate), ("replied: re: two", false));
    fixture.assert_settled().await;
    here.stop().await.unwrap();
    there.stop().await.unwrap();
}

#[tokio::test]
async fn x02_an_event_of_a_process_that_lives_is_not_taken_up_by_another() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::on_disk();
    let here = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let (one, two) = (Event::message("phone", "1", "one"), Event::message("phone", "1", "two"));
    let first = serve_in_background(&here, one.clone());
    barrier.reached().await;
    submit(&here, &two).await;
    let owners = || async {
        let events = fixture.store().in_flight_events(None).collect().await.unwrap();
        events.into_iter().map(|event| (event.owner, event.adoptions)).collect::<Vec<_>>()
    };
    let before = owners().await;
    assert_eq!(before.len(), 2);
    let there =
        fixture.second_host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&open_gate())).start().await;
    there.listen(&["phone".into()]).await;
    assert_eq!(owners().await, before);
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    assert_eq!(there.serve(two).await.unwrap().output, "re: two", "it is told what became of it there");
    assert_eq!(fixture.store().run_page(None, 10).await.unwrap().len(), 2, "each ran once");
    fixture.assert_settled().await;
    there.stop().await.unwrap();
    here.stop().await.unwrap();
}

#[tokio::test]
async fn x02_a_run_whose_end_is_not_on_record_yet_is_not_taken_for_one_of_a_dead_process() {
    let (hold, ending) = (ReplyBarrier::new(), ReplyBarrier::new());
    let renders = {
        let ending = ending.clone();
        boxed_plugin("renders", move |hooks| {
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
    let fixture = HostFixture::in_memory();
    let here =
        fixture.host_builder().channel(&phone_channel()).plugin(hold_tool_plugin(&hold)).plugin(renders).start().await;
    let one = serve_in_background(&here, Event::message("phone", "1", "[[tool:hold]]"));
    hold.reached().await;
    let beside = serve_in_background(&here, Event::message("phone", "1", ",tape.info"));
    ending.reached().await;
    // The model stage of the command is over, its end is not written; and a process dies with an event of the session.
    let there = fixture.host_builder().channel(&phone_channel()).start().await;
    let left = Event::message("phone", "1", "left");
    submit(&there, &left).await;
    there.stop().await.unwrap();
    hold.release();
    one.await.unwrap();
    here.listen(&["phone".into()]).await;
    while fixture.outcome(&left).await.is_none() {
        tokio::task::yield_now().await;
    }
    let running = fixture.store().open_runs().collect().await.unwrap();
    assert_eq!(running.len(), 1, "the command goes on: {running:?}");
    ending.release();
    let run_id = beside.await.unwrap().run_id.unwrap();
    assert_eq!(fixture.store().run(&run_id).await.unwrap().unwrap().status, RunStatus::Completed);
    here.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn g10_a_run_that_another_process_wants_to_end_is_cancelled() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::in_memory();
    let host = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let (event, other) = (Event::message("phone", "1", "one"), Event::message("phone", "2", "two"));
    let turn = serve_in_background(&host, event.clone());
    barrier.reached().await;
    submit(&host, &other).await;
    while fixture.store().open_runs().collect().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let runs = fixture.store().open_runs().collect().await.unwrap();
    let run_id = runs.iter().find(|run| run.event == EventKey::from(&event)).unwrap().run_id.clone();
    let mut wish = Batch::new();
    wish.push(Fact::RequestCancel { run_id: run_id.clone() });
    fixture.store().commit(wish).await.unwrap();
    assert_eq!(turn.await.unwrap().outcome, Some(Outcome::Cancelled));
    assert_eq!(fixture.store().run(&run_id).await.unwrap().unwrap().status, RunStatus::Cancelled);
    assert_eq!(fixture.outcome(&other).await, None, "the other goes on");
    barrier.release();
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn g01_events_of_a_conversation_are_accepted_in_the_order_of_the_calls() {
    const EVENT_COUNT: usize = 200;
    // The earlier an event, the longer it takes to find its session.
    let slow = boxed_plugin("slow", |hooks| {
        hooks.on(ResolveSession, |message: InboundEvent| async move {
            let number: usize = message.input.plain_text().parse().unwrap();
            for _ in number..EVENT_COUNT {
                tokio::task::yield_now().await;
            }
            Ok(None)
        });
    });
    let fixture = HostFixture::on_disk();
    let building =
        fixture.host_builder().channel(&phone_channel()).plugin(slow).plugin(gated_echo_plugin(&open_gate()));
    let host = building.configure(|settings| settings.max_queued_events = EVENT_COUNT).start().await;
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
    let in_order: Vec<String> = (0..EVENT_COUNT).map(|n| n.to_string()).collect();
    assert_eq!(accepted().await, in_order);
    for event in &events {
        let served = host.serve(event.clone()).await.unwrap();
        assert_eq!(served.output, format!("re: {}", event.input.plain_text()));
    }
    let messages =
        host.tapes().read(&tape, &TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::all() }).await.unwrap();
    let users = messages.iter().filter(|entry| entry.payload["role"] == "user");
    let said: Vec<String> = users.map(|entry| entry.payload["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(said, in_order, "and so are their turns");
    fixture.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x01_the_same_event_in_flight_and_after_gets_the_same_outcome_from_either_host() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::on_disk();
    let here = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let there =
        fixture.second_host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&open_gate())).start().await;
    let event = Event::message("phone", "1", "one");
    let first = serve_in_background(&here, event.clone());
    barrier.reached().await;
    let again = [serve_in_background(&here, event.clone()), serve_in_background(&there, event.clone())];
    barrier.release();
    let first = first.await.unwrap();
    assert_eq!((first.output.as_str(), first.is_duplicate), ("re: one", false));
    for again in again {
        let again = again.await.unwrap();
        assert!(again.is_duplicate);
        assert_eq!(
            (&again.outcome, &again.run_id, &again.outbounds),
            (&first.outcome, &first.run_id, &first.outbounds)
        );
    }
    let after = there.serve(event).await.unwrap();
    assert_eq!((after.is_duplicate, &after.outcome), (true, &first.outcome));
    assert_eq!(fixture.store().run_page(None, 10).await.unwrap().len(), 1);
    fixture.assert_settled().await;
    here.stop().await.unwrap();
    there.stop().await.unwrap();
}

#[tokio::test]
async fn x03_an_event_that_a_dead_process_left_is_ended_by_whoever_sends_it_again() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::on_disk();
    let desk = || Arc::new(TestChannel::with_waiting_callers("desk"));
    let here = fixture.host_builder().channel(&desk()).plugin(gated_echo_plugin(&barrier)).start().await;
    let (one, two) = (Event::message("desk", "1", "one"), Event::message("desk", "1", "two"));
    submit(&here, &one).await;
    barrier.reached().await;
    submit(&here, &two).await;
    let stopping = tokio::spawn(here.stop());
    barrier.release();
    stopping.await.unwrap().unwrap();
    assert_eq!(fixture.outcome(&two).await, None, "its turn had not begun");

    // It does not listen: nothing but the event itself makes it look.
    let there = fixture.second_host_builder().channel(&desk()).plugin(gated_echo_plugin(&open_gate())).start().await;
    let again = there.serve(two).await.unwrap();
    assert_eq!((again.is_duplicate, again.output.as_str()), (true, "re: two"));
    fixture.assert_settled().await;
    there.stop().await.unwrap();
}

#[tokio::test]
async fn x01_an_event_whose_source_goes_away_in_the_middle_is_accepted_and_ends_or_is_not_accepted() {
    let fixture = HostFixture::on_disk();
    let host = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&open_gate())).start().await;
    let mut accepted = 0;
    for waits in [1, 1, 1, 2, 2, 3, 3, 4] {
        let event = Event::message("phone", "1", format!("gone after {waits}"));
        let mut call = host.submit(event.clone().into());
        let mut polled = 0;
        // Dropped when it has to wait for so many times.
        std::future::poll_fn(|context| {
            polled += 1;
            match call.poll_unpin(context) {
                Poll::Pending if polled < waits => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
        drop(call);
        // What comes after it in the conversation is not held up.
        assert_eq!(host.serve(Event::message("phone", "1", "next")).await.unwrap().output, "re: next");
        if fixture.store().inbox_record(&EventKey::from(&event)).await.unwrap().is_some() {
            accepted += 1;
            let ended = tokio::time::timeout(Duration::from_mins(1), host.serve(event)).await;
            assert!(matches!(ended.expect("it ends").unwrap().outcome, Some(Outcome::Replied { .. })));
        }
    }
    assert!(accepted > 0);
    fixture.assert_settled().await;
    host.stop().await.unwrap();
}
