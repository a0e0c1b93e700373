//! Messages that are held back for a while, and what is overheard (C3). On paused time.

use std::sync::Arc;
use std::time::Duration;

use capstan::Host;
use capstan::hooks::Plugin;
use capstan::hooks::args::{Busy, Prompt};
use capstan::hooks::contracts::{Debounce, Intake};
use capstan::hooks::points::{AdmitMessage, RunModel};
use capstan::protocol::{AdmissionMode, Event, Outcome};
use tokio::time::{Instant, sleep};

use crate::house::{House, in_words, plugin, submit};
use crate::phone::Phone;

/// Quiet for 2 s, at most 10 s, others are let in for 60 s.
fn debounce() -> Debounce {
    let seconds = Duration::from_secs;
    Debounce { quiet: seconds(2), max_wait: seconds(10), active_window: Some(seconds(60)) }
}

/// Answers with what it was told.
fn echoes() -> Box<dyn Plugin> {
    plugin("echo", |hooks| {
        hooks.on(RunModel, |prompt: Prompt| async move { Ok(Some(format!("re: {}", prompt.text()))) });
    })
}

/// A group chat on a channel that holds messages back.
struct Group {
    house: House,
    host: Host,
    desk: Arc<Phone>,
    begun: Instant,
}

impl Group {
    async fn new(admission: Option<AdmissionMode>) -> Self {
        let desk = Phone::desk("desk").taking_in(Intake { admission, debounce: Some(debounce()) });
        let (house, desk) = (House::in_memory(), Arc::new(desk));
        let host = house.host().channel(&desk).plugin(echoes()).start().await;
        Self { house, host, desk, begun: Instant::now() }
    }

    /// Says something to the bot, so many seconds after the beginning.
    async fn says(&self, second: u64, text: &str) -> Event {
        self.submit(second, Event::message("desk", "group", text)).await
    }

    /// Says something to somebody else.
    async fn mutters(&self, second: u64, text: &str) -> Event {
        let mut event = Event::message("desk", "group", text);
        event.metadata.insert(Event::ADDRESSED.to_owned(), false.into());
        self.submit(second, event).await
    }

    async fn submit(&self, second: u64, event: Event) -> Event {
        tokio::time::sleep_until(self.begun + Duration::from_secs(second)).await;
        submit(&self.host, &event).await;
        event
    }

    async fn outcome(&self, event: &Event) -> Outcome {
        self.desk.answer_to(&event.event_id).await.outcome
    }

    async fn assert_folded(&self, event: &Event, into: &Event) {
        let run_id = self.desk.answer_to(&into.event_id).await.run_id.unwrap();
        assert_eq!(self.outcome(event).await, Outcome::Folded { run_id });
    }

    fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    async fn ends(self) {
        self.house.assert_tidy().await;
        self.host.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c03_messages_that_follow_one_another_closely_become_one_turn() {
    let group = Group::new(None).await;
    let one = group.says(0, "one").await;
    let two = group.says(1, "two").await;
    let three = group.says(2, "three").await;
    assert_eq!(in_words(&group.outcome(&three).await), "replied: re: one\ntwo\nthree");
    assert_eq!(group.seconds(), 4, "two seconds after the last");
    group.assert_folded(&one, &three).await;
    group.assert_folded(&two, &three).await;
    let later = group.says(30, "later").await;
    assert_eq!(in_words(&group.outcome(&later).await), "replied: re: later");
    group.ends().await;
}

#[tokio::test(start_paused = true)]
async fn c03_whoever_never_stops_talking_is_answered_after_the_maximum_wait() {
    let group = Group::new(None).await;
    let mut events = Vec::new();
    for second in 0..=9 {
        events.push(group.says(second, &second.to_string()).await);
    }
    let outcome = group.outcome(&events[9]).await;
    assert_eq!(group.seconds(), 10);
    assert_eq!(in_words(&outcome), "replied: re: 0\n1\n2\n3\n4\n5\n6\n7\n8\n9");
    for event in &events[..9] {
        group.assert_folded(event, &events[9]).await;
    }
    group.ends().await;
}

#[tokio::test(start_paused = true)]
async fn c03_commands_are_not_held_back() {
    let group = Group::new(None).await;
    let one = group.says(0, "one").await;
    let command = group.says(1, ",tape.info").await;
    group.outcome(&command).await;
    assert_eq!(group.seconds(), 1, "at once");
    assert_eq!(group.house.outcome(&one).await, None);
    assert_eq!(in_words(&group.outcome(&one).await), "replied: re: one");
    assert_eq!(group.seconds(), 2, "as if there had been no command");
    group.ends().await;
}

#[tokio::test(start_paused = true)]
async fn c03_what_is_overheard_is_taken_in_while_the_conversation_is_active_and_dropped_otherwise() {
    let group = Group::new(None).await;
    let chatter = group.mutters(0, "nice weather").await;
    assert_eq!(group.outcome(&chatter).await, Outcome::Dropped);
    let asked = group.says(5, "bot, what is this?").await;
    let more = group.mutters(6, "the blue one").await;
    // What was overheard came last, and waits for as long as it may.
    assert_eq!(in_words(&group.outcome(&more).await), "replied: re: bot, what is this?\nthe blue one");
    assert_eq!(group.seconds(), 15);
    group.assert_folded(&asked, &more).await;
    let still = group.mutters(40, "still with us").await;
    assert_eq!(in_words(&group.outcome(&still).await), "replied: re: still with us");
    let late = group.mutters(70, "bye").await;
    assert_eq!(group.outcome(&late).await, Outcome::Dropped);
    group.ends().await;
}

#[tokio::test(start_paused = true)]
async fn t13_a_session_that_only_waits_is_not_busy() {
    let group = Group::new(Some(AdmissionMode::Drop)).await;
    let one = group.says(0, "one").await;
    let two = group.says(1, "two").await;
    assert_eq!(in_words(&group.outcome(&two).await), "replied: re: one\ntwo", "nothing went on when it came");
    group.assert_folded(&one, &two).await;
    let three = group.says(20, "three").await;
    assert_eq!(in_words(&group.outcome(&three).await), "replied: re: three", "the turn was over");
    group.ends().await;
}

#[tokio::test(start_paused = true)]
async fn h02_admit_message_is_told_whether_a_turn_is_going_on() {
    let seen: Arc<std::sync::Mutex<Vec<bool>>> = Arc::default();
    let gate = capstan_testing::Gate::new();
    let (told, held) = (Arc::clone(&seen), gate.clone());
    let watches = plugin("watches", move |hooks| {
        let (told, held) = (Arc::clone(&told), held.clone());
        hooks.on(AdmitMessage, move |busy: Busy| {
            told.lock().unwrap().push(busy.0);
            async { Ok(None) }
        });
        hooks.on(RunModel, move |prompt: Prompt| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(Some(prompt.text()))
            }
        });
    });
    let (house, desk) = (House::in_memory(), Arc::new(Phone::desk("desk")));
    let host = house.host().channel(&desk).plugin(watches).start().await;
    let [one, two, three] = ["one", "two", "three"].map(|text| Event::message("desk", "1", text));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &two).await;
    gate.open();
    desk.answer_to(&two.event_id).await;
    submit(&host, &three).await;
    desk.answer_to(&three.event_id).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*seen.lock().unwrap(), [false, true, false]);
    house.assert_tidy().await;
    host.stop().await.unwrap();
}
