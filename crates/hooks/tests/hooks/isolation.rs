//! H4 and H7: a hook that hangs, panics or fails is named, and hurts nobody else.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_hooks::args::{ErrorReport, ErrorStage, NoticeRequest};
use capstan_hooks::points::{LoadState, OnError, ProvideTools, ResolveSession, RunModel, SaveState};
use capstan_hooks::{HookDeadlines, HookErrorReason, HookResult, HookRuntime, Registry};
use capstan_protocol::{SessionId, WorkspaceId};
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::support::{
    FnPlugin, load_state_args, plugin, resolve_session_args, run_model_args, runtime, save_state_args,
};

/// A plugin that counts how often its `save_state` and `on_error` are called.
fn counting_plugin(name: &'static str, calls: &Arc<AtomicUsize>) -> FnPlugin {
    let calls = Arc::clone(calls);
    plugin(name, move |hooks| {
        let (saved, told) = (Arc::clone(&calls), Arc::clone(&calls));
        hooks
            .on(SaveState, move || {
                saved.fetch_add(1, Ordering::SeqCst);
                async { Ok(Some(())) }
            })
            .on(OnError, move || {
                told.fetch_add(1, Ordering::SeqCst);
                async { Ok(Some(())) }
            });
    })
}

#[tokio::test(start_paused = true)]
async fn h07_a_hook_that_hangs_is_given_up_after_the_deadline_of_its_phase() {
    let stuck = plugin("stuck", |hooks| {
        hooks.on(ResolveSession, pending).on(LoadState, pending);
    });
    let mut registry = Registry::new();
    registry.register(&stuck);
    let deadlines = HookDeadlines { acceptance: Duration::from_secs(2), turn: Duration::from_secs(20) };
    let hooks = HookRuntime::new(registry, deadlines);

    let begun = Instant::now();
    let failure = hooks.call_first::<ResolveSession>(&resolve_session_args()).await.err().unwrap();
    assert_eq!(failure.to_string(), "resolve_session of plugin stuck did not answer within its deadline");
    assert_eq!(begun.elapsed().as_secs(), 2);

    let begun = Instant::now();
    let failure = hooks.call_all::<LoadState>(&load_state_args()).await.err().unwrap();
    assert_eq!((failure.hook, failure.reason), ("load_state", HookErrorReason::DeadlineExceeded));
    assert_eq!(begun.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn h07_the_model_stage_has_the_time_of_its_run_and_no_deadline_here() {
    let thinker = plugin("thinker", |hooks| {
        hooks.on(RunModel, || async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            Ok(Some("42".to_owned()))
        });
    });
    let decided = runtime([thinker]).run_model_stage(&run_model_args()).await.unwrap();
    assert_eq!(decided.unwrap().plugin.as_str(), "thinker");
}

#[tokio::test]
async fn h07_a_call_that_hangs_does_not_delay_another() {
    let stuck_once = plugin("stuck", |hooks| {
        hooks.on(ResolveSession, |message: capstan_hooks::InboundEvent| async move {
            match message.session_id.clone() {
                Some(session) => Ok(Some(session)),
                None => pending().await,
            }
        });
    });
    let hooks = runtime([stuck_once]);
    let (stuck_args, mut args) = (resolve_session_args(), resolve_session_args());
    args.message = args.message.with_session(SessionId::new("mine"), WorkspaceId::new("w"));
    let mut stuck = Box::pin(hooks.call_first::<ResolveSession>(&stuck_args));
    assert!(stuck.as_mut().now_or_never().is_none());
    let decided = hooks.call_first::<ResolveSession>(&args).now_or_never().expect("it answers at once").unwrap();
    assert_eq!(decided.unwrap().value.as_str(), "mine");
}

async fn panic_when_polled() -> HookResult<SessionId> {
    panic!("while waiting")
}

fn panic_when_called() -> std::future::Ready<HookResult<SessionId>> {
    panic!("when called")
}

#[tokio::test]
async fn h04_a_panic_is_the_failure_of_its_hook() {
    let waiting = plugin("reckless", |hooks| {
        hooks.on(ResolveSession, panic_when_polled);
    });
    let failure = runtime([waiting]).call_first::<ResolveSession>(&resolve_session_args()).await.err().unwrap();
    assert_eq!(failure.reason, HookErrorReason::Panic("while waiting".to_owned()));

    let called = plugin("reckless", |hooks| {
        hooks.on(ResolveSession, panic_when_called);
    });
    let failure = runtime([called]).call_first::<ResolveSession>(&resolve_session_args()).await.err().unwrap();
    assert_eq!(failure.reason, HookErrorReason::Panic("when called".to_owned()));
}

#[test]
fn h04_a_panic_of_a_synchronous_hook_is_its_failure_too() {
    let reckless = plugin("reckless", |hooks| {
        hooks.on_sync(ProvideTools, || panic!("no tools, says {}", "reckless"));
    });
    let failure = runtime([reckless]).call_all_sync::<ProvideTools>(&()).err().unwrap();
    assert_eq!(failure.to_string(), "provide_tools of plugin reckless panicked: no tools, says reckless");
}

#[tokio::test]
async fn t08_in_any_case_means_every_plugin_is_asked_and_the_first_failure_is_given() {
    let calls = Arc::new(AtomicUsize::new(0));
    let broken = |name, reason: &'static str| {
        plugin(name, move |hooks| {
            hooks.on(SaveState, move || async move { Err(reason.into()) });
        })
    };
    let hooks = runtime([
        counting_plugin("one", &calls),
        broken("second to fail", "no ink"),
        counting_plugin("two", &calls),
        broken("first to fail", "disk full"),
    ]);
    let failure = hooks.call_all_despite_failures::<SaveState>(&save_state_args()).await.unwrap_err();
    assert_eq!(failure.to_string(), "save_state of plugin first to fail failed: disk full");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

async fn panic_in_observer() -> HookResult<()> {
    panic!("no nerves")
}

#[tokio::test(start_paused = true)]
async fn h04_an_observer_that_fails_hangs_or_panics_does_not_stop_the_others() {
    let calls = Arc::new(AtomicUsize::new(0));
    let observer = |name, register: fn(&mut capstan_hooks::HookRegistrar)| plugin(name, register);
    let hooks = runtime([
        counting_plugin("one", &calls),
        observer("fails", |hooks| {
            hooks.on(OnError, || async { Err("full".into()) });
        }),
        observer("hangs", |hooks| {
            hooks.on(OnError, pending);
        }),
        observer("panics", |hooks| {
            hooks.on(OnError, panic_in_observer);
        }),
        counting_plugin("two", &calls),
    ]);
    let fault = ErrorReport { detail: "the whole story".into(), public: "a word".into() };
    hooks.notify_error(ErrorStage::Turn, fault, None, &NoticeRequest::default()).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}
