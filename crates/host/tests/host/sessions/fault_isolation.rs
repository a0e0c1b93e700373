//! Isolation of failures: other sessions continue, and the failing one ends with an outcome. The clock is paused and
//! advances only when every task waits, so all other tasks run before a deadline passes.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::{DispatchMessage, MaybeInboundEvent};
use capstan_hooks::contracts::{ChannelError, ResultStream, RunApi, Runner};
use capstan_hooks::points::{
    AdmitMessage, BuildPrompt, DispatchOutbound, LoadState, OnError, ProvideRunners, RenderOutbound, ResolveSession,
    RunModel, RunModelStream, SaveState,
};
use capstan_hooks::{BoxError, HookRegistrar, InboundEvent};
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Descriptor, Event, Outcome, RunContext, SessionId};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;
use futures::future::BoxFuture;

use crate::sessions::support::{format_outcome, hold_tool_plugin};
use crate::sessions::test_channel::{ChannelRequest, TestChannel};

const FAULTY_CHAT: &str = "faulty";

/// Fault of a hook in the faulty session.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HookFault {
    Hangs,
    Panics,
    Fails,
}

impl HookFault {
    const ALL: [Self; 3] = [Self::Hangs, Self::Panics, Self::Fails];

    /// Result with the fault if `is_faulty`, and `None` otherwise.
    fn inject<T: Send + 'static>(self, is_faulty: bool) -> BoxFuture<'static, Result<Option<T>, BoxError>> {
        Box::pin(async move {
            match self {
                _ if !is_faulty => Ok(None),
                Self::Hangs => std::future::pending().await,
                Self::Panics => panic!("injected fault"),
                Self::Fails => Err("injected fault".into()),
            }
        })
    }
}

fn is_faulty_message(message: &InboundEvent) -> bool {
    message.conversation_id.as_deref() == Some(FAULTY_CHAT)
}

fn is_faulty_session(session: &SessionId) -> bool {
    session.as_str().ends_with(FAULTY_CHAT)
}

type RegisterFault = fn(&mut HookRegistrar, HookFault);

/// Hooks of a turn, each with the outcome of an event whose hook is faulty.
fn hook_cases() -> Vec<(&'static str, RegisterFault, &'static str)> {
    vec![
        (
            "resolve_session",
            |hooks, fault| {
                hooks.on(ResolveSession, move |m: InboundEvent| fault.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "admit_message",
            |hooks, fault| {
                hooks.on(AdmitMessage, move |m: InboundEvent| fault.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "load_state",
            |hooks, fault| {
                hooks.on(LoadState, move |m: InboundEvent| fault.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "build_prompt",
            |hooks, fault| {
                hooks.on(BuildPrompt, move |m: InboundEvent| fault.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "run_model",
            |hooks, fault| {
                hooks.on(RunModel, move |s: SessionId| fault.inject(is_faulty_session(&s)));
            },
            "failed",
        ),
        (
            "run_model_stream",
            |hooks, fault| {
                hooks.on(RunModelStream, move |s: SessionId| fault.inject(is_faulty_session(&s)));
            },
            "failed",
        ),
        (
            "save_state",
            |hooks, fault| {
                hooks.on(SaveState, move |m: InboundEvent| fault.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "render_outbound",
            |hooks, fault| {
                hooks.on(RenderOutbound, move |m: InboundEvent| fault.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "dispatch_outbound",
            |hooks, fault| {
                hooks.on(DispatchOutbound, move |m: DispatchMessage| fault.inject(m.chat_id.as_str() == FAULTY_CHAT));
            },
            "failed",
        ),
        (
            "on_error",
            |hooks, fault| {
                hooks
                    .on(OnError, move |m: MaybeInboundEvent| fault.inject(m.0.as_ref().is_some_and(is_faulty_message)));
                hooks.on(LoadState, move |m: InboundEvent| HookFault::Fails.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
    ]
}

/// Asserts that another session completes a turn while the faulty turn has not ended.
async fn assert_others_progress(
    phone: &TestChannel,
    host: &capstan_host::Host,
    faulty_turn: &tokio::task::JoinHandle<capstan_host::ServedEvent>,
) {
    let served = host.serve(Event::message("phone", "other", "hello")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    assert!(!faulty_turn.is_finished(), "the faulty turn has not ended");
    assert!(phone.sent().iter().any(|line| line.starts_with("other: ")));
}

#[tokio::test(start_paused = true)]
async fn h07_a_faulty_hook_affects_its_own_turn_only() {
    for (name, register, outcome) in hook_cases() {
        for fault in HookFault::ALL {
            let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
            let faulty_plugin = ClosurePlugin::new("faulty", move |hooks| register(hooks, fault));
            let host = environment.host().channel(&phone).plugin(faulty_plugin).start().await;
            let event = Event::message("phone", FAULTY_CHAT, "hello");
            let faulty_turn = host.serve_in_background(event.clone());
            tokio::task::yield_now().await;
            if fault == HookFault::Hangs {
                assert_others_progress(&phone, &host, &faulty_turn).await;
            }
            let served = faulty_turn.await.unwrap();
            let settled = served.outcome.clone().expect("an outcome");
            assert_eq!(settled.name(), outcome, "{name} {fault:?}: {served:?}");
            assert_eq!(environment.outcome(&event).await, Some(settled), "{name} {fault:?}");
            let notices = phone.sent().iter().filter(|line| line.starts_with("faulty: ")).count();
            assert_eq!(notices, 1, "{name} {fault:?}: one notice: {:?}", phone.sent());
            let again = host.serve(Event::message("phone", "other", "again")).await.unwrap();
            assert!(matches!(again.outcome, Some(Outcome::Replied { .. })), "{name} {fault:?}");
            environment.assert_settled().await;
            host.stop().await.unwrap();
        }
    }
}

/// Runner that hangs or panics on request, and echoes any other message.
struct FaultyRunner;

impl Runner for FaultyRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "endless")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        use capstan_protocol::ResultBody;
        match context.input.plain_text() {
            "hang" => futures::stream::pending().boxed(),
            "panic" => panic!("injected fault"),
            "panic later" => futures::stream::once(async { panic!("injected fault") }).boxed(),
            text => {
                let reply = format!("received {text}").into();
                let message = ResultBody::MessageCompleted { content: reply, provider_meta: Default::default() };
                futures::stream::iter([message.into(), ResultBody::RunCompleted { silent: false }.into()]).boxed()
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g04_a_runner_that_hangs_or_panics_fails_its_own_run_only() {
    let runner: Arc<dyn Runner> = Arc::new(FaultyRunner);
    let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
    let endless = ClosurePlugin::new("endless", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let host = environment.host().channel(&phone).agent_plugin(endless).start().await;
    let faulty_turn = host.serve_in_background(Event::message("phone", FAULTY_CHAT, "hang"));
    tokio::task::yield_now().await;
    assert_others_progress(&phone, &host, &faulty_turn).await;
    let served = faulty_turn.await.unwrap();
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    for text in ["panic", "panic later"] {
        let served = host.serve(Event::message("phone", FAULTY_CHAT, text)).await.unwrap();
        assert_eq!(served.error.unwrap().code(), "run-failed", "{text}");
    }
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g04_a_hanging_tool_fails_its_own_run_only() {
    let barrier = ReplyBarrier::new();
    let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = environment.host().channel(&phone).plugin(hold_tool_plugin(&barrier)).start().await;
    let faulty_turn = host.serve_in_background(Event::message("phone", FAULTY_CHAT, "[[tool:hold]]"));
    barrier.reached().await;
    assert_others_progress(&phone, &host, &faulty_turn).await;
    let served = faulty_turn.await.unwrap();
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g04_a_full_queue_gives_a_notice_and_other_sessions_continue() {
    let barrier = ReplyBarrier::new();
    let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
    let builder = environment.host().channel(&phone).plugin(hold_tool_plugin(&barrier));
    let host = builder.options(|options| options.max_queued_events = 2).start().await;
    let faulty_turn = host.serve_in_background(Event::message("phone", FAULTY_CHAT, "[[tool:hold]]"));
    barrier.reached().await;
    let queued: Vec<Event> = (0..2).map(|n| Event::message("phone", FAULTY_CHAT, format!("waits {n}"))).collect();
    for event in &queued {
        host.submit_and_wait(event).await;
    }
    let one_more = Event::message("phone", FAULTY_CHAT, "one more");
    host.submit_and_wait(&one_more).await;
    phone.wait_until_sent(1).await;
    let settled = environment.outcome(&one_more).await.expect("the event is settled at once");
    assert!(matches!(settled, Outcome::Failed { .. }), "{settled:?}");
    assert!(phone.sent()[0].contains("too many messages are waiting"), "{:?}", phone.sent());
    assert_others_progress(&phone, &host, &faulty_turn).await;
    barrier.release();
    assert!(matches!(faulty_turn.await.unwrap().outcome, Some(Outcome::Replied { .. })));
    phone.wait_until_sent(5).await;
    for event in &queued {
        assert_eq!(environment.outcome(event).await.unwrap().name(), "replied");
    }
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_failing_chat_does_not_delay_intake() {
    let barrier = ReplyBarrier::new();
    let blocked = |request: &ChannelRequest| match request {
        ChannelRequest::Send(message) if message.chat_id.as_str() == FAULTY_CHAT => {
            Some(Box::pin(async { Err(ChannelError::new("phone".into(), "no network")) }) as BoxFuture<'static, _>)
        }
        _ => None,
    };
    let (environment, phone) =
        (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone").with_behaviour(blocked)));
    let builder = environment.host().channel(&phone).plugin(hold_tool_plugin(&barrier));
    let host = builder.options(|options| options.max_queued_events = 1).start().await;
    host.submit_and_wait(&Event::message("phone", FAULTY_CHAT, "[[tool:hold]]")).await;
    barrier.reached().await;
    // All but the first are refused, and none of the notices can be sent.
    let before = tokio::time::Instant::now();
    for number in 0..200 {
        host.submit_and_wait(&Event::message("phone", FAULTY_CHAT, format!("more {number}"))).await;
    }
    assert!(before.elapsed() < Duration::from_secs(1), "intake did not wait for the chat: {:?}", before.elapsed());
    barrier.release();
    host.stop().await.unwrap();
}

/// Channel behaviour that hangs in the calls selected by `is_match`.
fn hang_when(
    is_match: fn(&ChannelRequest) -> bool,
) -> impl Fn(&ChannelRequest) -> Option<BoxFuture<'static, Result<(), ChannelError>>> {
    move |request| {
        let hang = || Box::pin(std::future::pending()) as BoxFuture<'static, _>;
        is_match(request).then(hang)
    }
}

#[tokio::test(start_paused = true)]
async fn c02_a_hanging_send_delays_its_own_chat_only() {
    let phone = TestChannel::new("phone");
    let phone = phone.with_behaviour(hang_when(
        |request| matches!(request, ChannelRequest::Send(message) if message.chat_id.as_str() == FAULTY_CHAT),
    ));
    let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(phone));
    let host = environment.host().channel(&phone).start().await;
    let faulty_turn = host.serve_in_background(Event::message("phone", FAULTY_CHAT, "hello"));
    tokio::task::yield_now().await;
    assert_others_progress(&phone, &host, &faulty_turn).await;
    let served = faulty_turn.await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    assert_eq!(served.delivery_errors, ["the channel did not answer in time"]);
    let second = Event::message("phone", FAULTY_CHAT, "and now?");
    host.submit_and_wait(&second).await;
    assert!(matches!(
        host.serve(Event::message("phone", "other", "hi")).await.unwrap().outcome,
        Some(Outcome::Replied { .. })
    ));
    environment.wait_until_settled(&second).await;
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_hangs_in_show_or_answer_affects_its_own_caller_only() {
    for is_match in [(|request| matches!(request, ChannelRequest::Show(_))) as fn(&ChannelRequest) -> bool, |request| {
        matches!(request, ChannelRequest::Answer(_))
    }] {
        let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(hang_when(is_match)));
        let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
        let host = environment.host().channel(&phone).channel(&desk).start().await;
        let faulty_turn = host.serve_in_background(Event::message("desk", FAULTY_CHAT, "hello"));
        tokio::task::yield_now().await;
        assert_others_progress(&phone, &host, &faulty_turn).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        environment.assert_settled().await;
        host.stop().await.unwrap();
        let served = faulty_turn.await.unwrap();
        assert_eq!(format_outcome(&served.outcome.unwrap()).split(':').next(), Some("replied"));
    }
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_does_not_stop_does_not_block_the_stop_of_the_host() {
    let stubborn = Arc::new(
        TestChannel::new("stubborn").with_behaviour(hang_when(|request| matches!(request, ChannelRequest::Stop))),
    );
    let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = environment.host().channel(&stubborn).channel(&phone).start().await;
    host.listen(&["stubborn".into(), "phone".into()]).await;
    let served = host.serve(Event::message("phone", "1", "hello")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() <= Duration::from_secs(30), "{:?}", before.elapsed());
}
