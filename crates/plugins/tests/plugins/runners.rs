//! Runs at a plugin process.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::ApiRequest;
use capstan_protocol::RunnerSource;
use futures::StreamExt as _;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    RecordingApi, ScriptedPlugin, collect, context, failure, message, run_api, runner, stop, to_json,
};

#[tokio::test]
async fn g15_a_runner_has_the_identity_of_its_manifest() {
    let plugin = ScriptedPlugin::new("echo", "");
    let descriptor = runner(&plugin.register()).descriptor();
    assert_eq!(descriptor.id.as_str(), "plugin:ann/scripted/hello");
    assert_eq!(descriptor.source, RunnerSource::Plugin);
    assert_eq!(descriptor.plugin.unwrap().version.as_deref(), Some("1.0.0"));
    assert!(descriptor.capabilities.interrupt);
    assert!(!descriptor.capabilities.effects_through_host, "the host does not see what a process does");
    assert!(!plugin.data_dir().exists(), "nothing was started");
}

#[tokio::test]
async fn k06_results_are_streamed_in_order_until_the_terminal_one() {
    let hooks = ScriptedPlugin::new("echo", "");
    let (plugin, hooks) = (&hooks, hooks.register());
    let results = collect(&runner(&hooks), "run-1", "h\u{e9} \u{2028} \u{1f600}").await;
    let kinds: Vec<&str> = results.iter().map(|result| result["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message.delta", "message.completed", "run.completed"]);
    assert_eq!(message(&results), "you said h\u{e9} \u{2028} \u{1f600}");
    assert!(plugin.data_dir().exists());
    stop(&hooks).await;
}

#[tokio::test]
async fn k04_a_run_calls_the_host_under_its_own_authority() {
    let plugin = ScriptedPlugin::new("calls", "");
    let hooks = plugin.register();
    let backend = Arc::new(RecordingApi::default());
    let call = async |text: &str| {
        let api = run_api("run-1", Arc::clone(&backend), CancellationToken::new());
        let results = runner(&hooks).run(context("run-1", text), api).map(|it| to_json(it.body)).collect::<Vec<_>>();
        serde_json::from_str::<Value>(message(&results.await)).unwrap()
    };
    let params = r#"{"params": {"scope": "conversation", "key": "seen"}}"#;
    assert_eq!(call(&format!("state.get {params}")).await, json!({"result": {"of": "seen"}}));
    let params = r#"{"params": {"scope": "conversation", "key": "seen", "value": [1]}}"#;
    assert_eq!(call(&format!("state.set {params}")).await, json!({"result": null}));
    assert!(matches!(&backend.calls.lock().unwrap()[1], ApiRequest::StateSet(set) if set.value == json!([1])));
    let refused = call("tape.info {}").await;
    assert_eq!(refused["error"]["data"]["code"], "unauthorized");
    assert_eq!(refused["error"]["code"], -32000);
    for wrong in [
        "tape.burn {}",
        "state.get {\"params\": {\"scope\": \"galaxy\", \"key\": \"a\"}}",
        "models.stream {}",
        "models.stream {\"stream\": \"a\", \"credit\": 0}",
        "tape.info {\"stream\": \"a\", \"credit\": 1}",
        "tape.info {\"call_id\": \"both\"}",
    ] {
        assert_eq!(call(wrong).await["error"]["code"], -32602, "{wrong}");
    }
    stop(&hooks).await;
}

#[tokio::test]
async fn k04_the_output_of_a_model_is_streamed_under_the_credit_of_the_plugin() {
    let plugin = ScriptedPlugin::new("streams", "");
    let hooks = plugin.register();
    let results = collect(&runner(&hooks), "run-1", "x").await;
    let answer: Value = serde_json::from_str(message(&results)).unwrap();
    let items = answer[0].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[19], &items[20]),
        (21, &json!({"type": "text", "data": "19"}), &json!({"type": "stop"}))
    );
    assert_eq!(answer[1], json!({}));
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_a_run_cannot_use_the_authority_of_another() {
    let plugin = ScriptedPlugin::new("other_run", "");
    let hooks = plugin.register();
    assert_eq!(message(&collect(&runner(&hooks), "run-1", "x").await), "-32005");
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_results_of_another_run_end_nothing() {
    let plugin = ScriptedPlugin::new("foreign", "");
    let hooks = plugin.register();
    let results = collect(&runner(&hooks), "run-1", "x").await;
    // The result with the id of another run is passed on: the host drops and counts it.
    assert_eq!(results[0], json!({"type": "run.completed", "run_id": "other"}));
    assert_eq!(message(&results), "you said x");
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_results_after_the_end_of_a_run_are_dropped() {
    let plugin = ScriptedPlugin::new("twice", "");
    let hooks = plugin.register();
    for run in ["run-1", "run-2"] {
        let results = collect(&runner(&hooks), run, "x").await;
        assert_eq!((results.len(), message(&results)), (3, "you said x"), "{run}");
    }
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_run_that_is_not_read_holds_up_no_other() {
    let plugin = ScriptedPlugin::new("pump", "");
    let hooks = plugin.register();
    let runner = runner(&hooks);
    let api = run_api("slow", Arc::default(), CancellationToken::new());
    let mut slow = runner.run(context("slow", "x"), api);
    assert_eq!(to_json(slow.next().await.unwrap().body)["data"]["delta"], "0 ");
    // The plugin has no credit for more of the slow run, and serves others meanwhile.
    for number in 0..3 {
        let results = collect(&runner, &format!("run-{number}"), "x").await;
        assert_eq!(results.len(), 101);
    }
    let rest: Vec<Value> = slow.map(|it| to_json(it.body)).collect().await;
    assert_eq!(
        (rest.len(), &rest[98]["data"]["delta"], &rest[99]["type"]),
        (100, &json!("99 "), &json!("run.completed"))
    );
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_run_that_sends_without_credit_fails_alone() {
    let plugin = ScriptedPlugin::new("over_credit", "");
    let hooks = plugin.register();
    let runner = runner(&hooks);
    let api = run_api("flood", Arc::default(), CancellationToken::new());
    let mut flood = runner.run(context("flood", "x"), api);
    flood.next().await.unwrap();
    // This run is answered after all results of the other have arrived.
    assert_eq!(message(&collect(&runner, "run-2", "ok").await), "you said ok");
    let results: Vec<Value> = flood.map(|it| to_json(it.body)).collect().await;
    assert!(failure(&results).contains("without credit"), "{results:?}");
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_many_runs_share_one_process() {
    let plugin = ScriptedPlugin::new("echo", "");
    let hooks = plugin.register();
    let runner = runner(&hooks);
    let runs = (0..200).map(|number| {
        let runner = Arc::clone(&runner);
        async move { collect(&runner, &format!("run-{number}"), &format!("{number}")).await }
    });
    for (number, results) in join_all(runs).await.iter().enumerate() {
        assert_eq!(message(results), format!("you said {number}"));
    }
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_cancelled_run_has_a_grace_period_for_its_last_results() {
    let plugin = ScriptedPlugin::new("last_words", "");
    let hooks = plugin.register();
    let token = CancellationToken::new();
    let mut results = runner(&hooks).run(context("run-1", "x"), run_api("run-1", Arc::default(), token.clone()));
    results.next().await.unwrap();
    token.cancel();
    let rest: Vec<Value> = results.map(|it| to_json(it.body)).collect().await;
    assert_eq!(message(&rest), "cancelled: cancelled");
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_run_that_is_dropped_is_closed_at_the_plugin() {
    let plugin = ScriptedPlugin::new("cancel_log", "");
    let hooks = plugin.register();
    let api = run_api("run-1", Arc::default(), CancellationToken::new());
    let mut dropped = runner(&hooks).run(context("run-1", "x"), api);
    // Polls until the run has started: no result follows.
    let waited = tokio::time::timeout(Duration::from_secs(1), dropped.next()).await;
    assert!(waited.is_err());
    drop(dropped);
    let log: Value = serde_json::from_str(message(&collect(&runner(&hooks), "run-2", "report").await)).unwrap();
    assert_eq!(log, json!([{"run_id": "run-1", "reason": "cancelled", "grace_ms": 0}]));
    stop(&hooks).await;
}
