//! H3 and T5: call order of plugins, and the point at which calling stops.

use capstan_hooks::points::{LoadState, OnboardConfig, ResolveSession, RunModel, RunModelStream};
use capstan_hooks::run_model_stage;
use capstan_protocol::{JsonObject, SessionId, StreamEvent};
use futures::StreamExt as _;
use futures::stream;
use serde_json::json;

use crate::support::{FnPlugin, load_state_args, plugin, resolve_session_args, run_model_args, runtime};

/// Plugin that resolves every event to the session of its name.
fn session_resolver(name: &'static str) -> FnPlugin {
    plugin(name, move |hooks| {
        hooks.on(ResolveSession, move || async move { Ok(Some(SessionId::new(name))) });
    })
}

/// Plugin that loads a state with its name.
fn state_loader(name: &'static str) -> FnPlugin {
    plugin(name, move |hooks| {
        hooks.on(LoadState, move || async move { Ok(Some(JsonObject::from_iter([("by".to_owned(), json!(name))]))) });
    })
}

fn empty_state_loader(name: &'static str) -> FnPlugin {
    plugin(name, |hooks| {
        hooks.on(LoadState, || async { Ok(None) });
    })
}

#[tokio::test]
async fn h03_last_registered_plugin_is_called_first_and_first_value_decides() {
    let undecided = plugin("undecided", |hooks| {
        hooks.on(ResolveSession, || async { Ok(None) });
    });
    let never = plugin("never called", |hooks| {
        hooks.on(ResolveSession, || async { Err("it was called".into()) });
    });
    let hooks = runtime([never, session_resolver("earlier"), session_resolver("later"), undecided]);
    let decision = hooks.call_first::<ResolveSession>(&resolve_session_args()).await.unwrap().unwrap();
    assert_eq!((decision.plugin.as_str(), decision.value.as_str()), ("later", "later"));
}

#[tokio::test]
async fn h03_no_value_from_any_plugin_is_none() {
    assert!(runtime([]).call_first::<ResolveSession>(&resolve_session_args()).await.unwrap().is_none());
}

#[tokio::test]
async fn h03_call_all_collects_every_answer_in_order_including_none() {
    let hooks = runtime([state_loader("one"), empty_state_loader("two"), state_loader("three")]);
    let answers = hooks.call_all::<LoadState>(&load_state_args()).await.unwrap();
    let answers: Vec<_> =
        answers.iter().map(|answer| (answer.plugin.as_str(), answer.value.as_ref().map(|map| &map["by"]))).collect();
    assert_eq!(answers, [("three", Some(&json!("three"))), ("two", None), ("one", Some(&json!("one")))]);
}

#[tokio::test]
async fn h03_call_all_stops_at_a_failure_and_names_its_plugin() {
    let broken = plugin("broken", |hooks| {
        hooks.on(LoadState, || async { Err("no state".into()) });
    });
    let hooks = runtime([state_loader("one"), broken, state_loader("three")]);
    let failure = hooks.call_all::<LoadState>(&load_state_args()).await.err().unwrap();
    assert_eq!(failure.to_string(), "load_state of plugin broken failed: no state");
}

#[tokio::test]
async fn t05_plugin_with_both_model_hooks_is_called_for_its_stream_first() {
    let both = plugin("both", |hooks| {
        hooks
            .on(RunModel, || async { Ok(Some("as a text".to_owned())) })
            .on(RunModelStream, || async { Ok(Some(stream::iter([StreamEvent::text("as a stream")]).boxed())) });
    });
    let decision = run_model_stage(&runtime([both]), &run_model_args()).await.unwrap().unwrap();
    assert_eq!(decision.value.collect::<Vec<_>>().await, [StreamEvent::text("as a stream")]);
}

#[tokio::test]
async fn t05_text_becomes_a_stream_of_one_event_and_no_value_is_none() {
    let text = plugin("text", |hooks| {
        hooks.on(RunModel, || async { Ok(Some("reply".to_owned())) });
    });
    let decision = run_model_stage(&runtime([text]), &run_model_args()).await.unwrap().unwrap();
    assert_eq!(decision.value.collect::<Vec<_>>().await, [StreamEvent::text("reply")]);

    let neither = plugin("neither", |hooks| {
        hooks.on(RunModel, || async { Ok(None) }).on(RunModelStream, || async { Ok(None) });
    });
    assert!(run_model_stage(&runtime([neither]), &run_model_args()).await.unwrap().is_none());
}

#[test]
fn h08_listing_has_every_hook_with_its_plugins_in_call_order() {
    let onboarding_plugin = |name| {
        plugin(name, |hooks| {
            hooks.on_sync(OnboardConfig, || Ok(None)).on(ResolveSession, || async { Ok(None) });
        })
    };
    let hooks = runtime([onboarding_plugin("first"), onboarding_plugin("second")]);
    let listing = hooks.registry().hook_listings();
    let plugins = |name: &str| -> Vec<String> {
        let hook = listing.iter().find(|hook| hook.point.name == name).unwrap();
        hook.implementors.iter().map(|implementor| implementor.plugin.to_string()).collect()
    };
    assert_eq!(plugins("resolve_session"), ["second", "first"]);
    assert_eq!(plugins("onboard_config"), ["first", "second"], "a folded hook is listed in the order of registration");
    assert_eq!(plugins("save_state"), [""; 0], "a hook without implementors is listed too");
    assert_eq!(listing.len(), capstan_hooks::points::HOOK_POINTS.len());
}
