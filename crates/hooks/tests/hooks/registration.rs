//! H5 and H9: declared arguments, and plugins that do not load.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::ModelText;
use capstan_hooks::points::{ResolveSession, SaveState};
use capstan_hooks::{HookTraceEvent, HookTraceResult, HookTracer, InboundEvent};
use capstan_protocol::{PluginName, SessionId};

use crate::support::{fallible_plugin, plugin, resolve_session_args, runtime, save_state_args};

/// Tracer that records every event.
#[derive(Default)]
struct RecordingTracer(Mutex<Vec<HookTraceEvent>>);

impl HookTracer for RecordingTracer {
    fn record(&self, event: &HookTraceEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[tokio::test]
async fn h05_implementation_receives_its_declared_arguments_and_is_traced() {
    let recorder = Arc::new(RecordingTracer::default());
    let tracer = Arc::clone(&recorder);
    let frugal = plugin("frugal", move |hooks| {
        hooks.add_tracer(Arc::clone(&tracer) as Arc<dyn HookTracer>);
        hooks.on(SaveState, |output: ModelText, session: SessionId| async move {
            assert_eq!((&*output, session.as_str()), ("hello", "cli:local"));
            Ok(Some(()))
        });
        hooks.on(ResolveSession, || async { Ok(None) });
    });
    let hooks = runtime([frugal]);
    hooks.call_all_despite_failures::<SaveState>(&save_state_args()).await.unwrap();
    hooks.call_first::<ResolveSession>(&resolve_session_args()).await.unwrap();
    hooks.trace_fallback::<ResolveSession>("cli:local");

    let plugin = || PluginName::new("frugal");
    let expected = [
        HookTraceEvent::Called {
            hook: "save_state",
            plugin: plugin(),
            arguments: vec!["model_output", "session_id"],
            result: HookTraceResult::Value("done".to_owned()),
        },
        HookTraceEvent::Called {
            hook: "resolve_session",
            plugin: plugin(),
            arguments: Vec::new(),
            result: HookTraceResult::Nothing,
        },
        HookTraceEvent::Fallback { hook: "resolve_session", value: "cli:local".to_owned() },
    ];
    assert_eq!(*recorder.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn h09_plugin_that_does_not_load_is_reported_and_contributes_nothing() {
    let recorder = Arc::new(RecordingTracer::default());
    let tracer = Arc::clone(&recorder);
    let hooks = runtime([
        plugin("sound", |hooks| {
            hooks.on(ResolveSession, |message: InboundEvent| async move { Ok(Some(message.fallback_session())) });
        }),
        fallible_plugin("unconfigured", move |hooks| {
            hooks.add_tracer(Arc::clone(&tracer) as Arc<dyn HookTracer>);
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("partly registered"))) });
            Err("it needs a token".into())
        }),
        fallible_plugin("reckless", |_| panic!("no config file")),
        plugin("sound", |hooks| {
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("the second with its name"))) });
        }),
    ]);
    let failures = hooks.registry().load_failures().iter();
    let failures: Vec<(&str, &str)> = failures.map(|f| (f.plugin.as_str(), f.reason.as_str())).collect();
    assert_eq!(
        failures,
        [
            ("unconfigured", "it needs a token"),
            ("reckless", "it panicked: no config file"),
            ("sound", "a plugin with this name is already registered"),
        ]
    );
    let running: Vec<&str> = hooks.registry().plugins_by_priority().map(PluginName::as_str).collect();
    assert_eq!(running, ["sound"]);
    let decision = hooks.call_first::<ResolveSession>(&resolve_session_args()).await.unwrap().unwrap();
    assert_eq!(decision.value.as_str(), "cli:local");
    assert!(recorder.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn h09_plugin_may_use_the_name_of_one_that_did_not_load() {
    let hooks = runtime([
        fallible_plugin("retried", |_| Err("not yet".into())),
        plugin("retried", |hooks| {
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("second try"))) });
        }),
    ]);
    let decision = hooks.call_first::<ResolveSession>(&resolve_session_args()).await.unwrap().unwrap();
    assert_eq!(decision.value.as_str(), "second try");
}
