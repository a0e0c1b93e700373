//! What is said under one binding is never done under another (G2, G5): several people with bindings of their own in one
//! session, for each way of admission.

use std::sync::Arc;
use std::time::Duration;

use capstan::Host;
use capstan::hooks::contracts::{DebounceOptions, IntakeOptions, ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{
    ActorRef, AdmissionMode, Binding, BindingScope, Content, Descriptor, Event, EventFilter, PermissionSet, ResultBody,
    RunContext,
};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;

use crate::host_fixture::{HostFixture, boxed_plugin, format_outcome, submit};
use crate::test_channel::TestChannel;

/// Once its gate is open, says under which binding it runs, what it was told, and what it was told meanwhile.
struct BindingEchoRunner(ReplyBarrier);

impl Runner for BindingEchoRunner {
    fn descriptor(&self) -> Descriptor {
        let mut descriptor = Descriptor::new("test:says", "says");
        descriptor.permissions = PermissionSet { steering: true, ..PermissionSet::none() };
        descriptor.capabilities.effects_through_host = true;
        descriptor
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let gate = self.0.clone();
        let results = async move {
            gate.wait_for_release().await;
            let mut told = vec![context.input.plain_text().replace('\n', "+")];
            told.extend(api.steering.take().await.unwrap().iter().map(Content::text));
            let said = format!("{}: {}", context.trigger.binding_id, told.join("+"));
            let said = ResultBody::MessageCompleted { content: said.into(), provider_meta: Default::default() };
            futures::stream::iter([said.into(), ResultBody::RunCompleted { silent: false }.into()])
        };
        futures::stream::once(results).flatten().boxed()
    }
}

fn binding_echo_plugin(gate: &ReplyBarrier) -> Box<dyn Plugin> {
    let runner: Arc<dyn Runner> = Arc::new(BindingEchoRunner(gate.clone()));
    boxed_plugin("says", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

/// The binding of one person.
fn actor_binding(actor: &str) -> Binding {
    let (channel, actor_id) = (Some("desk".into()), Some(actor.to_owned()));
    Binding {
        binding_id: actor.into(),
        scope: BindingScope { channel, actor_id, ..BindingScope::default() },
        runner_id: "test:says".into(),
        ..capstan_policy::default_binding()
    }
}

fn actor_message(actor: &str, text: &str) -> Event {
    let actor = Some(ActorRef { id: actor.to_owned(), name: None });
    Event { actor, ..Event::message("desk", "1", text) }
}

fn member_joined(actor: &str) -> Event {
    Event { event_type: "group.member_joined".to_owned(), ..actor_message(actor, "joined") }
}

/// A session with people that have bindings, and one that has none.
struct SharedSession {
    house: HostFixture,
    host: Host,
    desk: Arc<TestChannel>,
    gate: ReplyBarrier,
}

impl SharedSession {
    async fn with_intake(intake: IntakeOptions) -> Self {
        let (house, gate) = (HostFixture::in_memory(), ReplyBarrier::new());
        let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_intake(intake));
        let host = house.host_builder().channel(&desk).plugin(binding_echo_plugin(&gate)).start().await;
        for actor in ["ann", "bob"] {
            host.bindings().save(&actor_binding(actor), &host.runners()).await.unwrap();
        }
        host.bindings().set_enabled(&"default".into(), false, &host.runners()).await.unwrap();
        Self { house, host, desk, gate }
    }

    /// What became of each of these, of which the first has begun its turn when the others come.
    async fn outcomes(self, events: &[Event]) -> Vec<String> {
        for (number, event) in events.iter().enumerate() {
            submit(&self.host, event).await;
            if number == 0 {
                self.gate.reached().await;
            }
        }
        self.gate.release();
        let mut outcomes = Vec::new();
        for event in events {
            outcomes.push(format_outcome(&self.desk.wait_for_answer(&event.event_id).await.outcome));
        }
        self.house.assert_settled().await;
        self.host.stop().await.unwrap();
        outcomes
    }
}

async fn admission_outcomes(mode: AdmissionMode, events: &[Event]) -> Vec<String> {
    SharedSession::with_intake(IntakeOptions { admission: Some(mode), debounce: None }).await.outcomes(events).await
}

#[tokio::test(start_paused = true)]
async fn g05_what_comes_meanwhile_is_never_done_under_the_binding_of_another() {
    use AdmissionMode::{Collect, FollowUp, Interrupt, Steer};
    let alone = |actor: &str, text: &str| format!("replied: {actor}: {text}");
    let folded = || "folded".to_owned();
    let silent = || "silent".to_owned();
    let cancelled = || "cancelled".to_owned();
    let (one, two, three) = (actor_message("ann", "one"), actor_message("bob", "two"), actor_message("ann", "three"));
    let each = vec![alone("ann", "one"), alone("bob", "two"), alone("ann", "three")];
    let (more, nobody) = (actor_message("ann", "more"), actor_message("eve", "nobody"));
    let cases = [
        (FollowUp, vec![&one, &two, &three], each.clone()),
        (Steer, vec![&one, &more], vec![alone("ann", "one+more"), folded()]),
        (Steer, vec![&one, &two, &three], each.clone()),
        (Steer, vec![&one, &more, &two], vec![alone("ann", "one+more"), folded(), alone("bob", "two")]),
        (Steer, vec![&one, &nobody, &three], vec![alone("ann", "one"), silent(), alone("ann", "three")]),
        (Collect, vec![&one, &more, &three], vec![alone("ann", "one"), folded(), alone("ann", "more+three")]),
        (Collect, vec![&one, &two, &three], each),
        (
            Collect,
            vec![&one, &more, &three, &two],
            vec![alone("ann", "one"), folded(), alone("ann", "more+three"), alone("bob", "two")],
        ),
        (Collect, vec![&one, &nobody, &three], vec![alone("ann", "one"), silent(), alone("ann", "three")]),
        (Interrupt, vec![&one, &three], vec![cancelled(), alone("ann", "three")]),
        (Interrupt, vec![&one, &two], vec![alone("ann", "one"), alone("bob", "two")]),
        (Interrupt, vec![&one, &two, &three], vec![cancelled(), alone("bob", "two"), alone("ann", "three")]),
        (Interrupt, vec![&one, &nobody], vec![alone("ann", "one"), silent()]),
        (Interrupt, vec![&one, &nobody, &three], vec![cancelled(), silent(), alone("ann", "three")]),
    ];
    for (mode, events, wanted) in cases {
        let events: Vec<Event> = events.into_iter().cloned().collect();
        let texts: Vec<&str> = events.iter().map(|event| event.input.plain_text()).collect();
        assert_eq!(admission_outcomes(mode, &events).await, wanted, "{mode:?} {texts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g05_what_is_held_back_together_is_not_done_under_one_binding() {
    let seconds = Duration::from_secs;
    let debounce = DebounceOptions { quiet_period: seconds(2), max_wait: seconds(10), active_window: None };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let room = SharedSession::with_intake(intake).await;
    room.gate.release();
    let events = [
        actor_message("ann", "one"),
        actor_message("ann", "more"),
        actor_message("bob", "two"),
        actor_message("ann", "three"),
    ];
    for event in &events {
        submit(&room.host, event).await;
    }
    let mut outcomes = Vec::new();
    for event in &events {
        outcomes.push(format_outcome(&room.desk.wait_for_answer(&event.event_id).await.outcome));
    }
    let wanted = ["folded", "replied: ann: one+more", "replied: bob: two", "replied: ann: three"];
    assert_eq!(outcomes, wanted);
    room.house.assert_settled().await;
    room.host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_each_event_is_matched_by_what_it_says_itself() {
    let room =
        SharedSession::with_intake(IntakeOptions { admission: Some(AdmissionMode::Collect), debounce: None }).await;
    let contains = |text: &str| EventFilter {
        field: "input.text".to_owned(),
        one_of: Vec::new(),
        contains: Some(text.to_owned()),
        exists: None,
    };
    let sesame = Binding { binding_id: "sesame".into(), filters: vec![contains("sesame")], ..actor_binding("ann") };
    room.host.bindings().save(&sesame, &room.host.runners()).await.unwrap();
    let events = [actor_message("ann", "one"), actor_message("ann", "open sesame"), actor_message("ann", "and bash")];
    let wanted = ["replied: ann: one", "replied: sesame: open sesame", "replied: ann: and bash"];
    assert_eq!(room.outcomes(&events).await, wanted);
}

#[tokio::test(start_paused = true)]
async fn g01_what_is_no_message_has_a_run_of_its_own_whatever_comes_after_it() {
    use AdmissionMode::Interrupt;
    let wanted = ["cancelled", "replied: ann: joined", "replied: ann: stop"];
    assert_eq!(
        admission_outcomes(
            Interrupt,
            &[actor_message("ann", "one"), member_joined("ann"), actor_message("ann", "stop")]
        )
        .await,
        wanted
    );
    let wanted = ["replied: ann: one", "replied: ann: joined"];
    assert_eq!(
        admission_outcomes(Interrupt, &[actor_message("ann", "one"), member_joined("ann")]).await,
        wanted,
        "nor does it interrupt"
    );
}

#[tokio::test(start_paused = true)]
async fn g02_an_event_that_waits_has_the_binding_there_is_when_its_turn_begins() {
    let room = SharedSession::with_intake(IntakeOptions::default()).await;
    let (one, two) = (actor_message("ann", "one"), actor_message("bob", "two"));
    submit(&room.host, &one).await;
    room.gate.reached().await;
    submit(&room.host, &two).await;
    room.host.bindings().remove(&"bob".into()).await.unwrap();
    room.gate.release();
    assert_eq!(format_outcome(&room.desk.wait_for_answer(&two.event_id).await.outcome), "silent");
    room.host.stop().await.unwrap();
}
