//! Debounced messages and messages to others (C3), on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::{PromptContent, SessionBusy};
use capstan_hooks::contracts::{DebounceOptions, IntakeOptions};
use capstan_hooks::points::{AdmitMessage, RunModel};
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{AdmissionMode, Event, Outcome};
use tokio::time::{Instant, sleep};

use crate::sessions::support::format_outcome;
use crate::sessions::test_channel::TestChannel;

/// Quiet period of 2 s, maximum wait of 10 s, active window of 60 s.
fn debounce_options() -> DebounceOptions {
    let seconds = Duration::from_secs;
    DebounceOptions { quiet_period: seconds(2), max_wait: seconds(10), active_window: Some(seconds(60)) }
}

/// Plugin whose model stage echoes the prompt.
fn echo_plugin() -> ClosurePlugin {
    ClosurePlugin::new("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(format!("re: {}", prompt.text()))) });
    })
}

/// Group chat on a channel with debounce.
struct DebouncedGroup {
    environment: TestEnvironment,
    host: TestHost,
    channel: Arc<TestChannel>,
    started_at: Instant,
}

impl DebouncedGroup {
    async fn new(admission: Option<AdmissionMode>) -> Self {
        let channel = TestChannel::with_waiting_callers("desk")
            .with_intake(IntakeOptions { admission, debounce: Some(debounce_options()) });
        let (environment, channel) = (TestEnvironment::in_memory(), Arc::new(channel));
        let host = environment.host().channel(&channel).plugin(echo_plugin()).start().await;
        Self { environment, host, channel, started_at: Instant::now() }
    }

    /// Sends a message to the bot at this second after the start.
    async fn send_addressed(&self, second: u64, text: &str) -> Event {
        self.submit(second, Event::message("desk", "group", text)).await
    }

    /// Sends a message to another person.
    async fn send_unaddressed(&self, second: u64, text: &str) -> Event {
        let mut event = Event::message("desk", "group", text);
        event.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
        self.submit(second, event).await
    }

    async fn submit(&self, second: u64, event: Event) -> Event {
        tokio::time::sleep_until(self.started_at + Duration::from_secs(second)).await;
        self.host.submit_and_wait(&event).await;
        event
    }

    async fn outcome(&self, event: &Event) -> Outcome {
        self.channel.wait_for_answer(&event.event_id).await.outcome
    }

    async fn assert_folded(&self, event: &Event, into: &Event) {
        let run_id = self.channel.wait_for_answer(&into.event_id).await.run_id.unwrap();
        assert_eq!(self.outcome(event).await, Outcome::Folded { run_id });
    }

    fn elapsed_seconds(&self) -> u64 {
        self.started_at.elapsed().as_secs()
    }

    async fn finish(self) {
        self.environment.assert_settled().await;
        self.host.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c03_messages_within_the_quiet_period_become_one_turn() {
    let group = DebouncedGroup::new(None).await;
    let one = group.send_addressed(0, "one").await;
    let two = group.send_addressed(1, "two").await;
    let three = group.send_addressed(2, "three").await;
    assert_eq!(format_outcome(&group.outcome(&three).await), "replied: re: one\ntwo\nthree");
    assert_eq!(group.elapsed_seconds(), 4, "two seconds after the last message");
    group.assert_folded(&one, &three).await;
    group.assert_folded(&two, &three).await;
    let later = group.send_addressed(30, "later").await;
    assert_eq!(format_outcome(&group.outcome(&later).await), "replied: re: later");
    group.finish().await;
}

#[tokio::test(start_paused = true)]
async fn c03_an_endless_series_of_messages_is_answered_after_the_maximum_wait() {
    let group = DebouncedGroup::new(None).await;
    let mut events = Vec::new();
    for second in 0..=9 {
        events.push(group.send_addressed(second, &second.to_string()).await);
    }
    let outcome = group.outcome(&events[9]).await;
    assert_eq!(group.elapsed_seconds(), 10);
    assert_eq!(format_outcome(&outcome), "replied: re: 0\n1\n2\n3\n4\n5\n6\n7\n8\n9");
    for event in &events[..9] {
        group.assert_folded(event, &events[9]).await;
    }
    group.finish().await;
}

#[tokio::test(start_paused = true)]
async fn c03_commands_are_not_debounced() {
    let group = DebouncedGroup::new(None).await;
    let one = group.send_addressed(0, "one").await;
    let command = group.send_addressed(1, ",tape.info").await;
    group.outcome(&command).await;
    assert_eq!(group.elapsed_seconds(), 1, "the command does not wait");
    assert_eq!(group.environment.outcome(&one).await, None);
    assert_eq!(format_outcome(&group.outcome(&one).await), "replied: re: one");
    assert_eq!(group.elapsed_seconds(), 2, "the command does not affect the debounce");
    group.finish().await;
}

#[tokio::test(start_paused = true)]
async fn c03_unaddressed_messages_are_ingested_in_the_active_window_only() {
    let group = DebouncedGroup::new(None).await;
    let chatter = group.send_unaddressed(0, "nice weather").await;
    assert_eq!(group.outcome(&chatter).await, Outcome::Dropped);
    let question = group.send_addressed(5, "bot, what is this?").await;
    let more = group.send_unaddressed(6, "the blue one").await;
    // The unaddressed message is the last one, and waits for the maximum time.
    assert_eq!(format_outcome(&group.outcome(&more).await), "replied: re: bot, what is this?\nthe blue one");
    assert_eq!(group.elapsed_seconds(), 15);
    group.assert_folded(&question, &more).await;
    let still = group.send_unaddressed(40, "still with us").await;
    assert_eq!(format_outcome(&group.outcome(&still).await), "replied: re: still with us");
    let late = group.send_unaddressed(70, "bye").await;
    assert_eq!(group.outcome(&late).await, Outcome::Dropped);
    group.finish().await;
}

#[tokio::test(start_paused = true)]
async fn t13_a_debouncing_session_is_not_busy() {
    let group = DebouncedGroup::new(Some(AdmissionMode::Drop)).await;
    let one = group.send_addressed(0, "one").await;
    let two = group.send_addressed(1, "two").await;
    assert_eq!(format_outcome(&group.outcome(&two).await), "replied: re: one\ntwo", "no turn was running");
    group.assert_folded(&one, &two).await;
    let three = group.send_addressed(20, "three").await;
    assert_eq!(format_outcome(&group.outcome(&three).await), "replied: re: three", "the turn was over");
    group.finish().await;
}

#[tokio::test(start_paused = true)]
async fn h02_admit_message_receives_the_busy_state_of_the_session() {
    let busy_states: Arc<std::sync::Mutex<Vec<bool>>> = Arc::default();
    let barrier = capstan_testing::ReplyBarrier::new();
    let (hook_states, hook_barrier) = (Arc::clone(&busy_states), barrier.clone());
    let recorder = ClosurePlugin::new("recorder", move |hooks| {
        let (hook_states, hook_barrier) = (Arc::clone(&hook_states), hook_barrier.clone());
        hooks.on(AdmitMessage, move |busy: SessionBusy| {
            hook_states.lock().unwrap().push(busy.0);
            async { Ok(None) }
        });
        hooks.on(RunModel, move |prompt: PromptContent| {
            let hook_barrier = hook_barrier.clone();
            async move {
                hook_barrier.wait_for_release().await;
                Ok(Some(prompt.text()))
            }
        });
    });
    let (environment, desk) = (TestEnvironment::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = environment.host().channel(&desk).plugin(recorder).start().await;
    let [one, two, three] = ["one", "two", "three"].map(|text| Event::message("desk", "1", text));
    host.submit_and_wait(&one).await;
    barrier.reached().await;
    host.submit_and_wait(&two).await;
    barrier.release();
    desk.wait_for_answer(&two.event_id).await;
    host.submit_and_wait(&three).await;
    desk.wait_for_answer(&three.event_id).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*busy_states.lock().unwrap(), [false, true, false]);
    environment.assert_settled().await;
    host.stop().await.unwrap();
}
