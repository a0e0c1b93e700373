//! Trouble in one session stays there: others go on meanwhile, and the one in trouble ends with an outcome. On paused
//! time, which moves when everybody waits: who waits for a deadline has let everybody else go first.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::args::{DispatchMessage, MaybeInboundEvent};
use capstan::hooks::contracts::{ChannelError, ResultStream, RunApi, Runner};
use capstan::hooks::points::{
    AdmitMessage, BuildPrompt, DispatchOutbound, LoadState, OnError, ProvideRunners, RenderOutbound, ResolveSession,
    RunModel, RunModelStream, SaveState,
};
use capstan::hooks::{BoxError, HookRegistrar, InboundEvent};
use capstan::protocol::{Descriptor, Event, Outcome, RunContext, SessionId};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;
use futures::future::BoxFuture;

use crate::host_fixture::{HostFixture, boxed_plugin, format_outcome, hold_tool_plugin, serve_in_background, submit};
use crate::orphaned_events::wait_until_settled;
use crate::test_channel::{ChannelRequest, TestChannel};

const FAULTY_CHAT: &str = "trouble";

/// What a hook does to the session that is in trouble.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HookFault {
    Hangs,
    Panics,
    Fails,
}

impl HookFault {
    const ALL: [Self; 3] = [Self::Hangs, Self::Panics, Self::Fails];

    /// Trouble, if this is the session that is in it; otherwise nothing.
    fn inject<T: Send + 'static>(self, is_in_trouble: bool) -> BoxFuture<'static, Result<Option<T>, BoxError>> {
        Box::pin(async move {
            match self {
                _ if !is_in_trouble => Ok(None),
                Self::Hangs => std::future::pending().await,
                Self::Panics => panic!("in trouble"),
                Self::Fails => Err("in trouble".into()),
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

/// Every hook of a turn, and what becomes of an event whose hook is in trouble.
fn hook_cases() -> Vec<(&'static str, RegisterFault, &'static str)> {
    vec![
        (
            "resolve_session",
            |hooks, trouble| {
                hooks.on(ResolveSession, move |m: InboundEvent| trouble.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "admit_message",
            |hooks, trouble| {
                hooks.on(AdmitMessage, move |m: InboundEvent| trouble.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "load_state",
            |hooks, trouble| {
                hooks.on(LoadState, move |m: InboundEvent| trouble.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "build_prompt",
            |hooks, trouble| {
                hooks.on(BuildPrompt, move |m: InboundEvent| trouble.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "run_model",
            |hooks, trouble| {
                hooks.on(RunModel, move |s: SessionId| trouble.inject(is_faulty_session(&s)));
            },
            "failed",
        ),
        (
            "run_model_stream",
            |hooks, trouble| {
                hooks.on(RunModelStream, move |s: SessionId| trouble.inject(is_faulty_session(&s)));
            },
            "failed",
        ),
        (
            "save_state",
            |hooks, trouble| {
                hooks.on(SaveState, move |m: InboundEvent| trouble.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "render_outbound",
            |hooks, trouble| {
                hooks.on(RenderOutbound, move |m: InboundEvent| trouble.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
        (
            "dispatch_outbound",
            |hooks, trouble| {
                hooks.on(DispatchOutbound, move |m: DispatchMessage| trouble.inject(m.chat_id.as_str() == FAULTY_CHAT));
            },
            "failed",
        ),
        (
            "on_error",
            |hooks, trouble| {
                hooks.on(OnError, move |m: MaybeInboundEvent| {
                    trouble.inject(m.0.as_ref().is_some_and(is_faulty_message))
                });
                hooks.on(LoadState, move |m: InboundEvent| HookFault::Fails.inject(is_faulty_message(&m)));
            },
            "failed",
        ),
    ]
}

/// A turn of another session that goes through while the one in trouble has not ended.
async fn assert_others_progress(
    phone: &TestChannel,
    host: &capstan::Host,
    trouble: &tokio::task::JoinHandle<capstan::ServedEvent>,
) {
    let served = host.serve(Event::message("phone", "other", "hello")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    assert!(!trouble.is_finished(), "the other is still in trouble");
    assert!(phone.sent().iter().any(|line| line.starts_with("other: ")));
}

#[tokio::test(start_paused = true)]
async fn h07_a_hook_in_trouble_costs_its_own_turn_and_nobody_elses() {
    for (name, register, outcome) in hook_cases() {
        for trouble in HookFault::ALL {
            let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
            let troubled = boxed_plugin("troubled", move |hooks| register(hooks, trouble));
            let host = house.host_builder().channel(&phone).plugin(troubled).start().await;
            let event = Event::message("phone", FAULTY_CHAT, "hello");
            let troubled = serve_in_background(&host, event.clone());
            tokio::task::yield_now().await;
            if trouble == HookFault::Hangs {
                assert_others_progress(&phone, &host, &troubled).await;
            }
            let served = troubled.await.unwrap();
            let ended = served.outcome.clone().expect("an outcome");
            assert_eq!(ended.name(), outcome, "{name} {trouble:?}: {served:?}");
            assert_eq!(house.outcome(&event).await, Some(ended), "{name} {trouble:?}");
            let notices = phone.sent().iter().filter(|line| line.starts_with("trouble: ")).count();
            assert_eq!(notices, 1, "{name} {trouble:?}: one notice: {:?}", phone.sent());
            let again = host.serve(Event::message("phone", "other", "again")).await.unwrap();
            assert!(matches!(again.outcome, Some(Outcome::Replied { .. })), "{name} {trouble:?}");
            house.assert_settled().await;
            host.stop().await.unwrap();
        }
    }
}

/// A runner that never ends, or a panicking one, for the session in trouble.
struct FaultyRunner;

impl Runner for FaultyRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "endless")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        use capstan::protocol::ResultBody;
        match context.input.plain_text() {
            "hang" => futures::stream::pending().boxed(),
            "panic" => panic!("in trouble"),
            "panic later" => futures::stream::once(async { panic!("in trouble") }).boxed(),
            text => {
                let heard = format!("heard {text}").into();
                let said = ResultBody::MessageCompleted { content: heard, provider_meta: Default::default() };
                futures::stream::iter([said.into(), ResultBody::RunCompleted { silent: false }.into()]).boxed()
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g04_a_runner_that_never_ends_or_panics_is_ended_and_hurts_nobody_else() {
    let runner: Arc<dyn Runner> = Arc::new(FaultyRunner);
    let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
    let endless = boxed_plugin("endless", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let host = house.host_builder().channel(&phone).plugin(endless).start().await;
    let troubled = serve_in_background(&host, Event::message("phone", FAULTY_CHAT, "hang"));
    tokio::task::yield_now().await;
    assert_others_progress(&phone, &host, &troubled).await;
    let served = troubled.await.unwrap();
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    for text in ["panic", "panic later"] {
        let served = host.serve(Event::message("phone", FAULTY_CHAT, text)).await.unwrap();
        assert_eq!(served.error.unwrap().code(), "run-failed", "{text}");
    }
    house.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g04_a_tool_that_hangs_costs_its_own_run() {
    let gate = ReplyBarrier::new();
    let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = house.host_builder().channel(&phone).plugin(hold_tool_plugin(&gate)).start().await;
    let troubled = serve_in_background(&host, Event::message("phone", FAULTY_CHAT, "[[tool:hold]]"));
    gate.reached().await;
    assert_others_progress(&phone, &host, &troubled).await;
    let served = troubled.await.unwrap();
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    house.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g04_a_session_with_too_much_to_do_says_so_and_the_others_go_on() {
    let gate = ReplyBarrier::new();
    let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
    let building = house.host_builder().channel(&phone).plugin(hold_tool_plugin(&gate));
    let host = building.configure(|settings| settings.max_queued_events = 2).start().await;
    let troubled = serve_in_background(&host, Event::message("phone", FAULTY_CHAT, "[[tool:hold]]"));
    gate.reached().await;
    let waiting: Vec<Event> = (0..2).map(|n| Event::message("phone", FAULTY_CHAT, format!("waits {n}"))).collect();
    for event in &waiting {
        submit(&host, event).await;
    }
    let one_more = Event::message("phone", FAULTY_CHAT, "one more");
    submit(&host, &one_more).await;
    phone.wait_until_sent(1).await;
    let ended = house.outcome(&one_more).await.expect("it has ended at once");
    assert!(matches!(ended, Outcome::Failed { .. }), "{ended:?}");
    assert!(phone.sent()[0].contains("too many messages are waiting"), "{:?}", phone.sent());
    assert_others_progress(&phone, &host, &troubled).await;
    gate.release();
    assert!(matches!(troubled.await.unwrap().outcome, Some(Outcome::Replied { .. })));
    phone.wait_until_sent(5).await;
    for event in &waiting {
        assert_eq!(house.outcome(event).await.unwrap().name(), "replied");
    }
    house.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_chat_that_takes_nothing_keeps_no_source_waiting() {
    let gate = ReplyBarrier::new();
    let blocked = |asked: &ChannelRequest| match asked {
        ChannelRequest::Send(message) if message.chat_id.as_str() == FAULTY_CHAT => {
            Some(Box::pin(async { Err(ChannelError::new("phone".into(), "no network")) }) as BoxFuture<'static, _>)
        }
        _ => None,
    };
    let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone").with_behaviour(blocked)));
    let building = house.host_builder().channel(&phone).plugin(hold_tool_plugin(&gate));
    let host = building.configure(|settings| settings.max_queued_events = 1).start().await;
    submit(&host, &Event::message("phone", FAULTY_CHAT, "[[tool:hold]]")).await;
    gate.reached().await;
    // Each of these but the first is refused, and the chat takes none of the notices.
    let before = tokio::time::Instant::now();
    for number in 0..200 {
        submit(&host, &Event::message("phone", FAULTY_CHAT, format!("more {number}"))).await;
    }
    assert!(before.elapsed() < Duration::from_secs(1), "nobody waited for the chat: {:?}", before.elapsed());
    gate.release();
    host.stop().await.unwrap();
}

/// A channel that hangs whenever it is asked this of the chat in trouble.
fn hang_when(
    when: fn(&ChannelRequest) -> bool,
) -> impl Fn(&ChannelRequest) -> Option<BoxFuture<'static, Result<(), ChannelError>>> {
    move |asked| {
        let hang = || Box::pin(std::future::pending()) as BoxFuture<'static, _>;
        when(asked).then(hang)
    }
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_hangs_when_it_sends_delays_only_that_chat() {
    let phone = TestChannel::new("phone");
    let phone = phone.with_behaviour(hang_when(
        |asked| matches!(asked, ChannelRequest::Send(message) if message.chat_id.as_str() == FAULTY_CHAT),
    ));
    let (house, phone) = (HostFixture::in_memory(), Arc::new(phone));
    let host = house.host_builder().channel(&phone).start().await;
    let troubled = serve_in_background(&host, Event::message("phone", FAULTY_CHAT, "hello"));
    tokio::task::yield_now().await;
    assert_others_progress(&phone, &host, &troubled).await;
    let served = troubled.await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    assert_eq!(served.delivery_errors, ["the channel did not answer in time"]);
    let and_now = Event::message("phone", FAULTY_CHAT, "and now?");
    submit(&host, &and_now).await;
    assert!(matches!(
        host.serve(Event::message("phone", "other", "hi")).await.unwrap().outcome,
        Some(Outcome::Replied { .. })
    ));
    wait_until_settled(&house, &and_now).await;
    house.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_hangs_when_it_shows_costs_a_deadline_and_when_it_answers_only_its_own_caller() {
    for when in [(|asked| matches!(asked, ChannelRequest::Show(_))) as fn(&ChannelRequest) -> bool, |asked| {
        matches!(asked, ChannelRequest::Answer(_))
    }] {
        let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(hang_when(when)));
        let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
        let host = house.host_builder().channel(&phone).channel(&desk).start().await;
        let troubled = serve_in_background(&host, Event::message("desk", FAULTY_CHAT, "hello"));
        tokio::task::yield_now().await;
        assert_others_progress(&phone, &host, &troubled).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        house.assert_settled().await;
        host.stop().await.unwrap();
        let served = troubled.await.unwrap();
        assert_eq!(format_outcome(&served.outcome.unwrap()).split(':').next(), Some("replied"));
    }
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_does_not_stop_keeps_no_host_from_stopping() {
    let stubborn =
        Arc::new(TestChannel::new("stubborn").with_behaviour(hang_when(|asked| matches!(asked, ChannelRequest::Stop))));
    let (house, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = house.host_builder().channel(&stubborn).channel(&phone).start().await;
    host.listen(&["stubborn".into(), "phone".into()]).await;
    let served = host.serve(Event::message("phone", "1", "hello")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() <= Duration::from_secs(30), "{:?}", before.elapsed());
}
