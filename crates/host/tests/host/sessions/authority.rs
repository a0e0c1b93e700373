//! Messages are never served under the binding of another person (G2, G5): several people with their own bindings in one
//! session, for each admission mode.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::HookRegistrar;
use capstan_hooks::contracts::{DebounceOptions, IntakeOptions, ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{
    ActorRef, AdmissionMode, Binding, BindingScope, Content, Descriptor, Event, EventFilter, EventKey, PermissionSet,
    ResultBody, RunContext,
};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;

use crate::sessions::support::format_outcome;
use crate::sessions::test_channel::TestChannel;

/// Runner that replies with its binding, its message and its steering messages after the release of its barrier.
struct BindingEchoRunner(ReplyBarrier);

impl Runner for BindingEchoRunner {
    fn descriptor(&self) -> Descriptor {
        let mut descriptor = Descriptor::new("plugin:local/echo/runner", "echo");
        descriptor.permissions = PermissionSet { steering: true, ..PermissionSet::none() };
        descriptor.capabilities.effects_through_host = true;
        descriptor.capabilities.event_context = true;
        descriptor
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let barrier = self.0.clone();
        let results = async move {
            barrier.wait_for_release().await;
            let mut texts = vec![context.input.plain_text().replace('\n', "+")];
            texts.extend(api.steering.take().await.unwrap().iter().map(Content::text));
            let text = format!("{}: {}", context.trigger.binding_id, texts.join("+"));
            let message = ResultBody::MessageCompleted { content: text.into(), provider_meta: Default::default() };
            futures::stream::iter([message.into(), ResultBody::RunCompleted { silent: false }.into()])
        };
        futures::stream::once(results).flatten().boxed()
    }
}

fn binding_echo_plugin(barrier: &ReplyBarrier) -> ClosurePlugin {
    let runner: Arc<dyn Runner> = Arc::new(BindingEchoRunner(barrier.clone()));
    ClosurePlugin::new("echo", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

/// Binding of one person.
fn actor_binding(actor: &str) -> Binding {
    let (channel, actor_id) = (Some("desk".into()), Some(actor.to_owned()));
    Binding {
        binding_id: actor.into(),
        scope: BindingScope { channel, actor_id, ..BindingScope::default() },
        runner_id: "plugin:local/echo/runner".into(),
        ..capstan_policy::default_binding()
    }
}

fn actor_message(actor: &str, text: &str) -> Event {
    let actor = Some(ActorRef { id: actor.to_owned(), name: None, kind: None });
    Event { actor, ..Event::message("desk", "1", text) }
}

fn member_joined(actor: &str) -> Event {
    Event { event_type: "group.member_joined".to_owned(), ..actor_message(actor, "joined") }
}

/// Session with people who have bindings, and one who has none.
struct SharedSession {
    environment: TestEnvironment,
    host: TestHost,
    channel: Arc<TestChannel>,
    barrier: ReplyBarrier,
}

impl SharedSession {
    async fn with_intake(intake: IntakeOptions) -> Self {
        let (environment, barrier) = (TestEnvironment::in_memory(), ReplyBarrier::new());
        let channel = Arc::new(TestChannel::with_waiting_callers("desk").with_intake(intake));
        let host = environment.host().channel(&channel).plugin(binding_echo_plugin(&barrier)).start().await;
        for actor in ["ann", "bob"] {
            host.bindings().save(&actor_binding(actor), &host.runners()).await.unwrap();
        }
        host.bindings().set_enabled(&"default".into(), false, &host.runners()).await.unwrap();
        Self { environment, host, channel, barrier }
    }

    /// Outcomes of `events`; the turn of the first has started when the others are submitted.
    async fn outcomes(self, events: &[Event]) -> Vec<String> {
        for (number, event) in events.iter().enumerate() {
            self.host.submit_and_wait(event).await;
            if number == 0 {
                self.barrier.reached().await;
            }
        }
        self.barrier.release();
        let mut outcomes = Vec::new();
        for event in events {
            outcomes.push(format_outcome(&self.channel.wait_for_answer(&event.event_id).await.outcome));
        }
        self.environment.assert_settled().await;
        self.host.stop().await.unwrap();
        outcomes
    }
}

async fn admission_outcomes(mode: AdmissionMode, events: &[Event]) -> Vec<String> {
    SharedSession::with_intake(IntakeOptions { admission: Some(mode), debounce: None }).await.outcomes(events).await
}

#[tokio::test(start_paused = true)]
async fn g05_a_message_during_a_turn_is_never_served_under_another_binding() {
    use AdmissionMode::{Collect, FollowUp, Interrupt, Steer};
    let replied = |actor: &str, text: &str| format!("replied: {actor}: {text}");
    let folded = || "folded".to_owned();
    let silent = || "silent".to_owned();
    let cancelled = || "cancelled".to_owned();
    let (one, two, three) = (actor_message("ann", "one"), actor_message("bob", "two"), actor_message("ann", "three"));
    let each = vec![replied("ann", "one"), replied("bob", "two"), replied("ann", "three")];
    let (more, unbound) = (actor_message("ann", "more"), actor_message("eve", "unbound"));
    let cases = [
        (FollowUp, vec![&one, &two, &three], each.clone()),
        (Steer, vec![&one, &more], vec![replied("ann", "one+more"), folded()]),
        (Steer, vec![&one, &two, &three], each.clone()),
        (Steer, vec![&one, &more, &two], vec![replied("ann", "one+more"), folded(), replied("bob", "two")]),
        (Steer, vec![&one, &unbound, &three], vec![replied("ann", "one"), silent(), replied("ann", "three")]),
        (Collect, vec![&one, &more, &three], vec![replied("ann", "one"), folded(), replied("ann", "more+three")]),
        (Collect, vec![&one, &two, &three], each),
        (
            Collect,
            vec![&one, &more, &three, &two],
            vec![replied("ann", "one"), folded(), replied("ann", "more+three"), replied("bob", "two")],
        ),
        (Collect, vec![&one, &unbound, &three], vec![replied("ann", "one"), silent(), replied("ann", "three")]),
        (Interrupt, vec![&one, &three], vec![cancelled(), replied("ann", "three")]),
        (Interrupt, vec![&one, &two], vec![replied("ann", "one"), replied("bob", "two")]),
        (Interrupt, vec![&one, &two, &three], vec![cancelled(), replied("bob", "two"), replied("ann", "three")]),
        (Interrupt, vec![&one, &unbound], vec![replied("ann", "one"), silent()]),
        (Interrupt, vec![&one, &unbound, &three], vec![cancelled(), silent(), replied("ann", "three")]),
    ];
    for (mode, events, expected) in cases {
        let events: Vec<Event> = events.into_iter().cloned().collect();
        let texts: Vec<&str> = events.iter().map(|event| event.input.plain_text()).collect();
        assert_eq!(admission_outcomes(mode, &events).await, expected, "{mode:?} {texts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g05_debounced_messages_keep_their_own_bindings() {
    let seconds = Duration::from_secs;
    let debounce = DebounceOptions { quiet_period: seconds(2), max_wait: seconds(10), active_window: None };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let session = SharedSession::with_intake(intake).await;
    session.barrier.release();
    let events = [
        actor_message("ann", "one"),
        actor_message("ann", "more"),
        actor_message("bob", "two"),
        actor_message("ann", "three"),
    ];
    for event in &events {
        session.host.submit_and_wait(event).await;
    }
    let mut outcomes = Vec::new();
    for event in &events {
        outcomes.push(format_outcome(&session.channel.wait_for_answer(&event.event_id).await.outcome));
    }
    let expected = ["folded", "replied: ann: one+more", "replied: bob: two", "replied: ann: three"];
    assert_eq!(outcomes, expected);
    session.environment.assert_settled().await;
    session.host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_each_collected_event_is_matched_by_its_own_fields() {
    let session =
        SharedSession::with_intake(IntakeOptions { admission: Some(AdmissionMode::Collect), debounce: None }).await;
    let contains = |text: &str| EventFilter {
        field: "input.text".to_owned(),
        one_of: Vec::new(),
        contains: Some(text.to_owned()),
        exists: None,
    };
    let sesame = Binding { binding_id: "sesame".into(), filters: vec![contains("sesame")], ..actor_binding("ann") };
    session.host.bindings().save(&sesame, &session.host.runners()).await.unwrap();
    let events = [actor_message("ann", "one"), actor_message("ann", "open sesame"), actor_message("ann", "and bash")];
    let expected = ["replied: ann: one", "replied: sesame: open sesame", "replied: ann: and bash"];
    assert_eq!(session.outcomes(&events).await, expected);
}

#[tokio::test(start_paused = true)]
async fn g01_an_event_that_is_not_a_message_gets_its_own_run() {
    use AdmissionMode::Interrupt;
    let expected = ["cancelled", "replied: ann: joined", "replied: ann: stop"];
    assert_eq!(
        admission_outcomes(
            Interrupt,
            &[actor_message("ann", "one"), member_joined("ann"), actor_message("ann", "stop")]
        )
        .await,
        expected
    );
    let expected = ["replied: ann: one", "replied: ann: joined"];
    assert_eq!(
        admission_outcomes(Interrupt, &[actor_message("ann", "one"), member_joined("ann")]).await,
        expected,
        "the event does not interrupt"
    );
}

#[tokio::test(start_paused = true)]
async fn g02_a_queued_event_gets_the_binding_in_force_when_its_turn_starts() {
    let session = SharedSession::with_intake(IntakeOptions::default()).await;
    let (one, two) = (actor_message("ann", "one"), actor_message("bob", "two"));
    session.host.submit_and_wait(&one).await;
    session.barrier.reached().await;
    session.host.submit_and_wait(&two).await;
    session.host.bindings().remove(&"bob".into()).await.unwrap();
    session.barrier.release();
    assert_eq!(format_outcome(&session.channel.wait_for_answer(&two.event_id).await.outcome), "silent");
    session.host.stop().await.unwrap();
}

/// Outcomes of messages of one person under one binding, the second of which is of remote origin.
async fn mixed_origin_outcomes(mode: AdmissionMode, texts: &[&str]) -> Vec<String> {
    let session = SharedSession::with_intake(IntakeOptions { admission: Some(mode), debounce: None }).await;
    let events: Vec<Event> = texts.iter().map(|text| actor_message("ann", text)).collect();
    let mut remote = None;
    for (number, event) in events.iter().enumerate() {
        if number == 1 {
            remote = Some(session.host.serve_in_background(event.clone()));
            while session.environment.store().inbox_record(&EventKey::from(event)).await.unwrap().is_none() {
                tokio::task::yield_now().await;
            }
        } else {
            session.host.submit_and_wait(event).await;
        }
        if number == 0 {
            session.barrier.reached().await;
        }
    }
    session.barrier.release();
    let mut outcomes = Vec::new();
    for event in &events {
        outcomes.push(format_outcome(&session.channel.wait_for_answer(&event.event_id).await.outcome));
    }
    remote.unwrap().await.unwrap();
    session.host.stop().await.unwrap();
    outcomes
}

#[tokio::test(start_paused = true)]
async fn g05_a_message_is_never_served_under_the_origin_of_another() {
    let each = ["replied: ann: one", "replied: ann: two", "replied: ann: three"];
    for mode in [AdmissionMode::Steer, AdmissionMode::Collect] {
        assert_eq!(mixed_origin_outcomes(mode, &["one", "two", "three"]).await, each, "{mode:?}");
    }
    assert_eq!(mixed_origin_outcomes(AdmissionMode::Interrupt, &["one", "two"]).await, each[..2]);
}
