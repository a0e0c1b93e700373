//! Trouble in one session stays there: others go on meanwhile, and the one in trouble ends with an outcome. On paused
//! time, which moves when everybody waits: who waits for a deadline has let everybody else go first.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::args::{MaybeInbound, Outgoing};
use capstan::hooks::contracts::{ChannelError, ResultStream, RunApi, Runner};
use capstan::hooks::points::{
    AdmitMessage, BuildPrompt, DispatchOutbound, LoadState, OnError, ProvideRunners, RenderOutbound, ResolveSession,
    RunModel, RunModelStream, SaveState,
};
use capstan::hooks::{BoxError, Inbound, Registrar};
use capstan::protocol::{Descriptor, Event, Outcome, RunContext, SessionId};
use capstan_testing::Gate;
use futures::StreamExt as _;
use futures::future::BoxFuture;

use crate::house::{House, holds_at, in_words, plugin, say, submit};
use crate::left::until_settled;
use crate::phone::{Asked, Phone};

const TROUBLE: &str = "trouble";

/// What a hook does to the session that is in trouble.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    Hangs,
    Panics,
    Fails,
}

impl Trouble {
    const ALL: [Self; 3] = [Self::Hangs, Self::Panics, Self::Fails];

    /// Trouble, if this is the session that is in it; otherwise nothing.
    fn strikes<T: Send + 'static>(self, is_in_trouble: bool) -> BoxFuture<'static, Result<Option<T>, BoxError>> {
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

fn is_in_trouble(message: &Inbound) -> bool {
    message.conversation_id.as_deref() == Some(TROUBLE)
}

fn is_troubled(session: &SessionId) -> bool {
    session.as_str().ends_with(TROUBLE)
}

type Register = fn(&mut Registrar, Trouble);

/// Every hook of a turn, and what becomes of an event whose hook is in trouble.
fn hooks() -> Vec<(&'static str, Register, &'static str)> {
    vec![
        (
            "resolve_session",
            |hooks, trouble| {
                hooks.on(ResolveSession, move |m: Inbound| trouble.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
        (
            "admit_message",
            |hooks, trouble| {
                hooks.on(AdmitMessage, move |m: Inbound| trouble.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
        (
            "load_state",
            |hooks, trouble| {
                hooks.on(LoadState, move |m: Inbound| trouble.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
        (
            "build_prompt",
            |hooks, trouble| {
                hooks.on(BuildPrompt, move |m: Inbound| trouble.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
        (
            "run_model",
            |hooks, trouble| {
                hooks.on(RunModel, move |s: SessionId| trouble.strikes(is_troubled(&s)));
            },
            "failed",
        ),
        (
            "run_model_stream",
            |hooks, trouble| {
                hooks.on(RunModelStream, move |s: SessionId| trouble.strikes(is_troubled(&s)));
            },
            "failed",
        ),
        (
            "save_state",
            |hooks, trouble| {
                hooks.on(SaveState, move |m: Inbound| trouble.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
        (
            "render_outbound",
            |hooks, trouble| {
                hooks.on(RenderOutbound, move |m: Inbound| trouble.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
        (
            "dispatch_outbound",
            |hooks, trouble| {
                hooks.on(DispatchOutbound, move |m: Outgoing| trouble.strikes(m.chat_id.as_str() == TROUBLE));
            },
            "failed",
        ),
        (
            "on_error",
            |hooks, trouble| {
                hooks.on(OnError, move |m: MaybeInbound| trouble.strikes(m.0.as_ref().is_some_and(is_in_trouble)));
                hooks.on(LoadState, move |m: Inbound| Trouble::Fails.strikes(is_in_trouble(&m)));
            },
            "failed",
        ),
    ]
}

/// A turn of another session that goes through while the one in trouble has not ended.
async fn assert_others_go_on(phone: &Phone, host: &capstan::Host, trouble: &tokio::task::JoinHandle<capstan::Served>) {
    let served = host.serve(Event::message("phone", "other", "hello")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    assert!(!trouble.is_finished(), "the other is still in trouble");
    assert!(phone.sent().iter().any(|line| line.starts_with("other: ")));
}

#[tokio::test(start_paused = true)]
async fn h07_a_hook_in_trouble_costs_its_own_turn_and_nobody_elses() {
    for (name, register, outcome) in hooks() {
        for trouble in Trouble::ALL {
            let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone")));
            let troubled = plugin("troubled", move |hooks| register(hooks, trouble));
            let host = house.host().channel(&phone).plugin(troubled).start().await;
            let event = Event::message("phone", TROUBLE, "hello");
            let troubled = say(&host, event.clone());
            tokio::task::yield_now().await;
            if trouble == Trouble::Hangs {
                assert_others_go_on(&phone, &host, &troubled).await;
            }
            let served = troubled.await.unwrap();
            let ended = served.outcome.clone().expect("an outcome");
            assert_eq!(ended.name(), outcome, "{name} {trouble:?}: {served:?}");
            assert_eq!(house.outcome(&event).await, Some(ended), "{name} {trouble:?}");
            let notices = phone.sent().iter().filter(|line| line.starts_with("trouble: ")).count();
            assert_eq!(notices, 1, "{name} {trouble:?}: one notice: {:?}", phone.sent());
            let again = host.serve(Event::message("phone", "other", "again")).await.unwrap();
            assert!(matches!(again.outcome, Some(Outcome::Replied { .. })), "{name} {trouble:?}");
            house.assert_tidy().await;
            host.stop().await.unwrap();
        }
    }
}

/// A runner that never ends, or a panicking one, for the session in trouble.
struct Endless;

impl Runner for Endless {
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
    let runner: Arc<dyn Runner> = Arc::new(Endless);
    let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone")));
    let endless = plugin("endless", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let host = house.host().channel(&phone).plugin(endless).start().await;
    let troubled = say(&host, Event::message("phone", TROUBLE, "hang"));
    tokio::task::yield_now().await;
    assert_others_go_on(&phone, &host, &troubled).await;
    let served = troubled.await.unwrap();
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    for text in ["panic", "panic later"] {
        let served = host.serve(Event::message("phone", TROUBLE, text)).await.unwrap();
        assert_eq!(served.error.unwrap().code(), "run-failed", "{text}");
    }
    house.assert_tidy().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g04_a_tool_that_hangs_costs_its_own_run() {
    let gate = Gate::new();
    let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone")));
    let host = house.host().channel(&phone).plugin(holds_at(&gate)).start().await;
    let troubled = say(&host, Event::message("phone", TROUBLE, "[[tool:hold]]"));
    gate.reached().await;
    assert_others_go_on(&phone, &host, &troubled).await;
    let served = troubled.await.unwrap();
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    house.assert_tidy().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g04_a_session_with_too_much_to_do_says_so_and_the_others_go_on() {
    let gate = Gate::new();
    let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone")));
    let building = house.host().channel(&phone).plugin(holds_at(&gate));
    let host = building.set(|settings| settings.session_queue = 2).start().await;
    let troubled = say(&host, Event::message("phone", TROUBLE, "[[tool:hold]]"));
    gate.reached().await;
    let waiting: Vec<Event> = (0..2).map(|n| Event::message("phone", TROUBLE, format!("waits {n}"))).collect();
    for event in &waiting {
        submit(&host, event).await;
    }
    let one_more = Event::message("phone", TROUBLE, "one more");
    submit(&host, &one_more).await;
    phone.until_sent(1).await;
    let ended = house.outcome(&one_more).await.expect("it has ended at once");
    assert!(matches!(ended, Outcome::Failed { .. }), "{ended:?}");
    assert!(phone.sent()[0].contains("too many messages wait"), "{:?}", phone.sent());
    assert_others_go_on(&phone, &host, &troubled).await;
    gate.open();
    assert!(matches!(troubled.await.unwrap().outcome, Some(Outcome::Replied { .. })));
    phone.until_sent(5).await;
    for event in &waiting {
        assert_eq!(house.outcome(event).await.unwrap().name(), "replied");
    }
    house.assert_tidy().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_chat_that_takes_nothing_keeps_no_source_waiting() {
    let gate = Gate::new();
    let blocked = |asked: &Asked| match asked {
        Asked::Send(message) if message.chat_id.as_str() == TROUBLE => {
            Some(Box::pin(async { Err(ChannelError::new("phone".into(), "no network")) }) as BoxFuture<'static, _>)
        }
        _ => None,
    };
    let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone").that(blocked)));
    let building = house.host().channel(&phone).plugin(holds_at(&gate));
    let host = building.set(|settings| settings.session_queue = 1).start().await;
    submit(&host, &Event::message("phone", TROUBLE, "[[tool:hold]]")).await;
    gate.reached().await;
    // Each of these but the first is refused, and the chat takes none of the notices.
    let before = tokio::time::Instant::now();
    for number in 0..200 {
        submit(&host, &Event::message("phone", TROUBLE, format!("more {number}"))).await;
    }
    assert!(before.elapsed() < Duration::from_secs(1), "nobody waited for the chat: {:?}", before.elapsed());
    gate.open();
    host.stop().await.unwrap();
}

/// A channel that hangs whenever it is asked this of the chat in trouble.
fn hangs(when: fn(&Asked) -> bool) -> impl Fn(&Asked) -> Option<BoxFuture<'static, Result<(), ChannelError>>> {
    move |asked| {
        let hang = || Box::pin(std::future::pending()) as BoxFuture<'static, _>;
        when(asked).then(hang)
    }
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_hangs_when_it_sends_delays_only_that_chat() {
    let phone = Phone::new("phone");
    let phone = phone.that(hangs(|asked| matches!(asked, Asked::Send(message) if message.chat_id.as_str() == TROUBLE)));
    let (house, phone) = (House::in_memory(), Arc::new(phone));
    let host = house.host().channel(&phone).start().await;
    let troubled = say(&host, Event::message("phone", TROUBLE, "hello"));
    tokio::task::yield_now().await;
    assert_others_go_on(&phone, &host, &troubled).await;
    let served = troubled.await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    assert_eq!(served.undelivered, ["the channel did not answer in time"]);
    let and_now = Event::message("phone", TROUBLE, "and now?");
    submit(&host, &and_now).await;
    assert!(matches!(
        host.serve(Event::message("phone", "other", "hi")).await.unwrap().outcome,
        Some(Outcome::Replied { .. })
    ));
    until_settled(&house, &and_now).await;
    house.assert_tidy().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_hangs_when_it_shows_costs_a_deadline_and_when_it_answers_only_its_own_caller() {
    for when in
        [(|asked| matches!(asked, Asked::Show(_))) as fn(&Asked) -> bool, |asked| matches!(asked, Asked::Answer(_))]
    {
        let desk = Arc::new(Phone::desk("desk").that(hangs(when)));
        let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone")));
        let host = house.host().channel(&phone).channel(&desk).start().await;
        let troubled = say(&host, Event::message("desk", TROUBLE, "hello"));
        tokio::task::yield_now().await;
        assert_others_go_on(&phone, &host, &troubled).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        house.assert_tidy().await;
        host.stop().await.unwrap();
        let served = troubled.await.unwrap();
        assert_eq!(in_words(&served.outcome.unwrap()).split(':').next(), Some("replied"));
    }
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_does_not_stop_keeps_no_host_from_stopping() {
    let stubborn = Arc::new(Phone::new("stubborn").that(hangs(|asked| matches!(asked, Asked::Stop))));
    let (house, phone) = (House::in_memory(), Arc::new(Phone::new("phone")));
    let host = house.host().channel(&stubborn).channel(&phone).start().await;
    host.listen(&["stubborn".into(), "phone".into()]).await;
    let served = host.serve(Event::message("phone", "1", "hello")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() <= Duration::from_secs(30), "{:?}", before.elapsed());
}
