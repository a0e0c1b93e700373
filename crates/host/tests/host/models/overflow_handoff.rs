//! Content of the handoff after a context overflow.

use capstan_host::testing::{SCRIPTED_MODEL_KEY, TestHost, TestHostBuilder, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

const WIRES: [WireProtocol; 3] = [WireProtocol::OpenAi, WireProtocol::Anthropic, WireProtocol::Gemini];

fn host_builder(wire: WireProtocol, server: &ScriptedModel) -> TestHostBuilder {
    let base = if wire == WireProtocol::OpenAi { server.base_url() } else { server.origin() };
    let options = ProviderOptions { api_base: Some(base), retries: 0, ..scripted_provider_options(server) };
    TestHost::builder().provider(wire.name(), wire, options).model(&format!("{}:scripted", wire.name()))
}

/// A turn that writes a file, and the overflow of the next one, before these replies.
fn replies_after_overflow(replies: impl IntoIterator<Item = ScriptedReply>) -> Vec<ScriptedReply> {
    let write = json!({"path": "notes.txt", "content": "seven"});
    let before = [
        ScriptedReply::tool_calls([("a", "fs_write", write)]),
        ScriptedReply::text("I noted the number."),
        ScriptedReply::context_overflow(),
    ];
    before.into_iter().chain(replies).collect()
}

/// State of the anchor of the overflow.
async fn handoff_states(host: &TestHost) -> Vec<Value> {
    let entries = host.entries().await;
    let anchors = entries.iter().filter(|entry| entry.name() == Some("auto_handoff/context_overflow"));
    anchors.filter_map(|entry| entry.payload.get("state").cloned()).collect()
}

async fn event_data(host: &TestHost, name: &str, key: &str) -> Vec<Value> {
    let entries = host.entries().await;
    entries.iter().filter(|entry| entry.name() == Some(name)).map(|entry| entry.payload["data"][key].clone()).collect()
}

/// State that is extracted without a model.
fn extracted_state() -> Value {
    json!({
        "reason": "context_length_exceeded", "error": "model-context-overflow", "task": "what was it?",
        "files": ["notes.txt"], "last_reply": "I noted the number.", "written_by": "host",
    })
}

#[tokio::test]
async fn a02_p15_next_request_carries_the_summary_that_the_model_wrote() {
    let summary = json!({
        "task": "remember a number", "decisions": ["it is kept in a file"], "open_questions": ["which format?"],
        "files": ["notes.txt: the number"], "next_steps": ["read it"],
    });
    for wire in WIRES {
        let written = ScriptedReply::text(summary.to_string()).with_usage(70, 30);
        let server = ScriptedModel::start(replies_after_overflow([written, ScriptedReply::text("seven")])).await;
        let host = host_builder(wire, &server).start().await;
        assert_eq!(host.send_message("note the number seven").await.error, None);
        assert_eq!(host.send_message("what was it?").await.error, None);
        let mut expected = summary.clone();
        expected["reason"] = json!("context_length_exceeded");
        expected["error"] = json!("model-context-overflow");
        expected["written_by"] = json!("model");
        assert_eq!(handoff_states(&host).await, [expected], "{}", wire.name());
        let requests = server.requests();
        assert_eq!(requests.len(), 5, "{}", wire.name());
        let (asked, last) = (&requests[3], requests[4].to_string());
        assert!(asked.get("tools").is_none(), "{}: no tools: {asked}", wire.name());
        for part in ["<transcript>", "user: what was it?", "assistant calls fs_write", "I noted the number."] {
            assert!(asked.to_string().contains(part), "{}: {part} is not in {asked}", wire.name());
        }
        assert!(last.contains("which format?") && last.contains("what was it?"), "{}: {last}", wire.name());
        assert!(!last.contains("I noted the number."), "{}: {last}", wire.name());
        assert_eq!(event_data(&host, "loop.step", "status").await, ["continue", "ok", "auto_handoff", "ok"]);
        assert_eq!(event_data(&host, "model.call", "call").await.len(), 5, "each request is recorded");
        assert_eq!(event_data(&host, "run", "status").await, ["ok", "ok", "error", "ok", "ok"]);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a02_handoff_is_extracted_if_the_model_gives_no_summary() {
    let failed = || ScriptedReply::status(500, r#"{"error": {"message": "no"}}"#);
    let overflow = ScriptedReply::context_overflow;
    for wire in WIRES {
        for attempts in [vec![failed()], vec![overflow(), overflow()], vec![ScriptedReply::text("{}")]] {
            let count = attempts.len();
            let replies = attempts.into_iter().chain([ScriptedReply::text("seven")]);
            let server = ScriptedModel::start(replies_after_overflow(replies)).await;
            let host = host_builder(wire, &server).start().await;
            host.send_message("note the number seven").await;
            assert_eq!(host.send_message("what was it?").await.error, None, "{}", wire.name());
            assert_eq!(handoff_states(&host).await, [extracted_state()], "{}", wire.name());
            let requests = server.requests();
            assert_eq!(requests.len(), 4 + count);
            let sizes: Vec<usize> = requests[3..3 + count].iter().map(|request| request.to_string().len()).collect();
            assert!(sizes.is_sorted_by(|one, next| one >= next), "a second request is not longer: {sizes:?}");
            let last = requests.last().unwrap().to_string();
            assert!(last.contains("notes.txt"), "{last}");
        }
    }
}

#[tokio::test]
async fn a02_second_overflow_after_a_summary_is_an_error() {
    let replies = [ScriptedReply::text(r#"{"task": "x"}"#), ScriptedReply::context_overflow()];
    let server = ScriptedModel::start(replies_after_overflow(replies)).await;
    let host = host_builder(WireProtocol::OpenAi, &server).start().await;
    host.send_message("note the number seven").await;
    assert!(host.send_message("what was it?").await.error.is_some());
    assert_eq!((handoff_states(&host).await.len(), server.requests().len()), (1, 5));
}

#[tokio::test]
async fn a02_no_summary_is_requested_if_no_step_is_left_for_the_request() {
    let server = ScriptedModel::start(replies_after_overflow([ScriptedReply::text("seven")])).await;
    let host =
        host_builder(WireProtocol::OpenAi, &server).options(|options| options.limits.max_steps = 2).start().await;
    host.send_message("note the number seven").await;
    assert_eq!(host.send_message("what was it?").await.error, None);
    assert_eq!(handoff_states(&host).await, [extracted_state()]);
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a02_tokens_of_the_summary_count_against_the_budget() {
    let written = ScriptedReply::text(r#"{"task": "x"}"#).with_usage(900, 100);
    let server = ScriptedModel::start(replies_after_overflow([written, ScriptedReply::text("never")])).await;
    let builder = host_builder(WireProtocol::OpenAi, &server);
    let host = builder.options(|options| options.limits.max_run_tokens = Some(1000)).start().await;
    host.send_message("note the number seven").await;
    assert!(host.send_message("what was it?").await.error.is_some());
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn x06_a02_keys_are_masked_in_the_state_of_a_handoff() {
    let summary = json!({"task": format!("use {SCRIPTED_MODEL_KEY}"), "decisions": [SCRIPTED_MODEL_KEY]});
    let replies = [ScriptedReply::text(summary.to_string()), ScriptedReply::text("done")];
    let server = ScriptedModel::start(replies_after_overflow(replies)).await;
    let host = host_builder(WireProtocol::OpenAi, &server).start().await;
    host.send_message("note the number seven").await;
    host.send_message("what was it?").await;
    let state = handoff_states(&host).await.pop().unwrap();
    assert_eq!((&state["task"], &state["decisions"]), (&json!("use [masked]"), &json!(["[masked]"])));
    assert!(!server.requests()[4].to_string().contains(SCRIPTED_MODEL_KEY));
}
