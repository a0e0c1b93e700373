//! H4 and H7: a hook that hangs, panics or fails is named and does not affect others.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_hooks::args::{ErrorReport, ErrorStage, NoticeRequest};
use capstan_hooks::points::{LoadState, OnError, ProvideTools, ResolveSession, RunModel, SaveState};
use capstan_hooks::{HookDeadlines, HookErrorReason, HookResult, HookRuntime, HookTurn, Registry, run_model_stage};
use capstan_protocol::{SessionId, WorkspaceId};
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::support::{
    FnPlugin, load_state_args, plugin, resolve_session_args, run_model_args, runtime, save_state_args,
};

/// Plugin that counts the calls of its `save_state` and `on_error`.
fn counting_plugin(name: &'static str, calls: &Arc<AtomicUsize>) -> FnPlugin {
    let calls = Arc::clone(calls);
    plugin(name, move |hooks| {
        let (saves, errors) = (Arc::clone(&calls), Arc::clone(&calls));
        hooks
            .on(SaveState, move || {
                saves.fetch_add(1, Ordering::SeqCst);
                async { Ok(Some(())) }
            })
            .on(OnError, move || {
                errors.fetch_add(1, Ordering::SeqCst);
                async { Ok(Some(())) }
            });
    })
}

#[tokio::test(start_paused = true)]
async fn h07_hanging_hook_fails_at_the_deadline_of_its_phase() {
    let stuck = plugin("stuck", |hooks| {
        hooks.on(ResolveSession, pending).on(LoadState, pending);
    });
    let mut registry = Registry::new();
    registry.register(&stuck);
    let deadlines = HookDeadlines { acceptance: Duration::from_secs(2), turn: Duration::from_secs(20) };
    let hooks = HookRuntime::new(registry, deadlines);

    let started = Instant::now();
    let failure = hooks.call_first::<ResolveSession>(&resolve_session_args()).await.err().unwrap();
    assert_eq!(failure.to_string(), "resolve_session of plugin stuck did not answer within its deadline");
    assert_eq!(started.elapsed().as_secs(), 2);

    let started = Instant::now();
    let failure = hooks.call_all::<LoadState>(&load_state_args()).await.err().unwrap();
    assert_eq!((failure.hook, failure.reason), ("load_state", HookErrorReason::DeadlineExceeded));
    assert_eq!(started.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn h07_model_stage_has_no_hook_deadline() {
    let slow = plugin("slow", |hooks| {
        hooks.on(RunModel, || async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            Ok(Some("42".to_owned()))
        });
    });
    let decision = run_model_stage(&runtime([slow]), &run_model_args()).await.unwrap();
    assert_eq!(decision.unwrap().plugin.as_str(), "slow");
}

#[tokio::test]
async fn h07_hanging_call_does_not_delay_another() {
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
    let decision = hooks.call_first::<ResolveSession>(&args).now_or_never().expect("an immediate answer").unwrap();
    assert_eq!(decision.unwrap().value.as_str(), "mine");
}

async fn panic_when_polled() -> HookResult<SessionId> {
    panic!("while waiting")
}

fn panic_when_called() -> std::future::Ready<HookResult<SessionId>> {
    panic!("when called")
}

#[tokio::test]
async fn h04_panic_is_the_failure_of_its_hook() {
    let waiting = plugin("reckless", |hooks| {
        hooks.on(ResolveSession, panic_when_polled);
    });
    let failure = runtime([waiting]).call_first::<ResolveSession>(&resolve_session_args()).await.err().unwrap();
    assert_eq!(failure.to_string(), "resolve_session of plugin reckless panicked: while waiting");

    let called = plugin("reckless", |hooks| {
        hooks.on(ResolveSession, panic_when_called);
    });
    let failure = runtime([called]).call_first::<ResolveSession>(&resolve_session_args()).await.err().unwrap();
    assert_eq!(failure.to_string(), "resolve_session of plugin reckless panicked: when called");
}

#[test]
fn h04_panic_of_a_synchronous_hook_is_its_failure() {
    let reckless = plugin("reckless", |hooks| {
        hooks.on_sync(ProvideTools, || panic!("no tools, says {}", "reckless"));
    });
    let failure = runtime([reckless]).call_all_sync::<ProvideTools>(&()).err().unwrap();
    assert_eq!(failure.to_string(), "provide_tools of plugin reckless panicked: no tools, says reckless");
}

#[tokio::test]
async fn t08_despite_failures_every_plugin_is_called_and_first_failure_returned() {
    let calls = Arc::new(AtomicUsize::new(0));
    let broken = |name, reason: &'static str| {
        plugin(name, move |hooks| {
            hooks.on(SaveState, move || async move { Err(reason.into()) });
        })
    };
    let hooks = runtime([
        counting_plugin("one", &calls),
        broken("second to fail", "read-only disk"),
        counting_plugin("two", &calls),
        broken("first to fail", "disk full"),
    ]);
    let failure = hooks.call_all_despite_failures::<SaveState>(&save_state_args()).await.unwrap_err();
    assert_eq!(failure.to_string(), "save_state of plugin first to fail failed: disk full");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

async fn panic_in_observer() -> HookResult<()> {
    panic!("observer panicked")
}

#[tokio::test(start_paused = true)]
async fn h04_observer_that_fails_hangs_or_panics_does_not_stop_the_others() {
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
    let report = ErrorReport { detail: "all details".into(), public: "an error".into() };
    hooks.notify_error(ErrorStage::Turn, report, None, &NoticeRequest::default(), &HookTurn::none()).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}
