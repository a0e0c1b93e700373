//! H5 and H9: what a plugin declares, and one that does not load.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::ModelText;
use capstan_hooks::points::{ResolveSession, SaveState};
use capstan_hooks::{Answer, Inbound, Trace, TraceEvent};
use capstan_protocol::{PluginName, SessionId};

use crate::support::{fallible, plugin, resolve_session, runtime, save_state};

/// Keeps what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<TraceEvent>>);

impl Trace for Told {
    fn record(&self, event: &TraceEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[tokio::test]
async fn h05_an_implementation_is_given_what_it_declares_and_the_trace_says_so() {
    let told = Arc::new(Told::default());
    let trace = Arc::clone(&told);
    let frugal = plugin("frugal", move |hooks| {
        hooks.trace(Arc::clone(&trace) as Arc<dyn Trace>);
        hooks.on(SaveState, |output: ModelText, session: SessionId| async move {
            assert_eq!((&*output, session.as_str()), ("hello", "cli:local"));
            Ok(Some(()))
        });
        hooks.on(ResolveSession, || async { Ok(None) });
    });
    let hooks = runtime([frugal]);
    hooks.all_in_any_case::<SaveState>(&save_state()).await.unwrap();
    hooks.first::<ResolveSession>(&resolve_session()).await.unwrap();
    hooks.fell_back::<ResolveSession>("cli:local");

    let plugin = || PluginName::new("frugal");
    let expected = [
        TraceEvent::Called {
            hook: "save_state",
            plugin: plugin(),
            arguments: vec!["model_output", "session_id"],
            answer: Answer::Value("done".to_owned()),
        },
        TraceEvent::Called {
            hook: "resolve_session",
            plugin: plugin(),
            arguments: Vec::new(),
            answer: Answer::Nothing,
        },
        TraceEvent::Fallback { hook: "resolve_session", value: "cli:local".to_owned() },
    ];
    assert_eq!(*told.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn h09_a_plugin_that_does_not_load_is_reported_and_contributes_nothing() {
    let told = Arc::new(Told::default());
    let trace = Arc::clone(&told);
    let hooks = runtime([
        plugin("sound", |hooks| {
            hooks.on(ResolveSession, |message: Inbound| async move { Ok(Some(message.fallback_session())) });
        }),
        fallible("unconfigured", move |hooks| {
            hooks.trace(Arc::clone(&trace) as Arc<dyn Trace>);
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("half registered"))) });
            Err("it needs a token".into())
        }),
        fallible("reckless", |_| panic!("no config file")),
        plugin("sound", |hooks| {
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("the second of its name"))) });
        }),
    ]);
    let failures = hooks.registry().failures().iter();
    let failures: Vec<(&str, &str)> = failures.map(|f| (f.plugin.as_str(), f.reason.as_str())).collect();
    assert_eq!(
        failures,
        [
            ("unconfigured", "it needs a token"),
            ("reckless", "it panicked: no config file"),
            ("sound", "a plugin of this name is registered already"),
        ]
    );
    let running: Vec<&str> = hooks.registry().running_order().map(PluginName::as_str).collect();
    assert_eq!(running, ["sound"]);
    let decided = hooks.first::<ResolveSession>(&resolve_session()).await.unwrap().unwrap();
    assert_eq!(decided.value.as_str(), "cli:local");
    assert!(told.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn h09_a_plugin_may_take_the_name_of_one_that_did_not_load() {
    let hooks = runtime([
        fallible("twice", |_| Err("not yet".into())),
        plugin("twice", |hooks| {
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("second try"))) });
        }),
    ]);
    let decided = hooks.first::<ResolveSession>(&resolve_session()).await.unwrap().unwrap();
    assert_eq!(decided.value.as_str(), "second try");
}
