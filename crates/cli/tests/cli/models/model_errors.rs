//! Behaviour that a user sees when a model fails.

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::json;

use super::provider::{PROVIDER_MODELS, assert_no_violations, fixture_with_model};
use crate::support::{entries_named, entries_of_kind};

fn refusal_reply(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not now"}}"#).with_header("retry-after-ms", "1")
}

#[test]
fn a08_passing_refusals_are_retried_without_a_trace() {
    for model in PROVIDER_MODELS {
        let replies = vec![
            refusal_reply(429),
            refusal_reply(429),
            ScriptedReply::text("here I am"),
            refusal_reply(500),
            ScriptedReply::text("again"),
        ];
        let server = ScriptedModel::start_blocking(replies);
        let fixture = fixture_with_model(&server, model);
        assert_eq!(fixture.capstan(&["run", "hello"]).data(), "here I am\n", "{model}");
        assert_eq!(fixture.capstan(&["run", "hello"]).data(), "again\n", "{model}");
        assert_eq!(entries_named(&fixture.entries(), "model.call").len(), 2, "a retried request is one call");
        fixture.assert_undamaged();
    }
}

#[test]
fn a08_retry_notice_gives_the_reason_and_the_delay() {
    let later =
        ScriptedReply::status(503, r#"{"error": {"message": "too busy"}}"#).with_header("retry-after-ms", "1000");
    let server = ScriptedModel::start_blocking(vec![later, ScriptedReply::text("here I am")]);
    let output = fixture_with_model(&server, PROVIDER_MODELS[0]).capstan(&["run", "hello"]).succeeded();
    assert_eq!(output.stdout, "here I am\n");
    let notices: Vec<&str> = output.stderr.lines().collect();
    assert!(notices.len() == 1 && notices[0].contains("answered 503"), "{output:?}");
    assert!(notices[0].ends_with("too busy; retrying in 2 s"), "{output:?}");
}

#[test]
fn a08_partial_reply_is_shown_and_the_next_run_works() {
    for model in PROVIDER_MODELS {
        for broken in
            [ScriptedReply::disconnect_after("half of it"), ScriptedReply::error_after("half of it", "I fell over")]
        {
            let server = ScriptedModel::start_blocking(vec![broken, ScriptedReply::text("whole")]);
            let fixture = fixture_with_model(&server, model);
            let output = fixture.capstan(&["run", "hello"]).failed("model-broken", 1);
            assert_eq!(output.stdout.trim_end(), "half of it", "{model}");
            assert_eq!(fixture.capstan(&["run", "again"]).data(), "whole\n", "{model}");
            assert_no_violations(&server);
            fixture.assert_undamaged();
        }
    }
}

#[test]
fn a08_invalid_reply_is_an_error() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::invalid_json(), ScriptedReply::text("sense")]);
        let fixture = fixture_with_model(&server, model);
        fixture.capstan(&["run", "hello"]).refused("model-broken", 1);
        assert_eq!(fixture.capstan(&["run", "again"]).data(), "sense\n", "{model}");
        fixture.assert_undamaged();
    }
}

#[test]
fn a02_context_overflow_starts_a_fresh_context_once() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::text("hi"),
            ScriptedReply::context_overflow(),
            ScriptedReply::text(r#"{"task": "greet", "decisions": ["be brief"]}"#),
            ScriptedReply::text("short now"),
        ]);
        let fixture = fixture_with_model(&server, model);
        fixture.capstan(&["run", "hello"]).data();
        assert_eq!(fixture.capstan(&["run", "and a long one"]).data(), "short now\n", "{model}");
        let entries = fixture.entries();
        assert_eq!(entries_named(&entries, "auto_handoff/context_overflow").len(), 1, "{model}");
        let last = server.requests().pop().unwrap().to_string();
        assert!(last.contains("and a long one") && !last.contains("hello"), "{model}: {last}");
        assert!(last.contains("be brief"), "{model}: the next request carries the summary: {last}");
        assert_no_violations(&server);
        fixture.assert_undamaged();
    }
}

#[test]
fn a02_fresh_context_lists_finished_tool_calls_so_that_they_are_not_repeated() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "echo pushed >> pushes.txt"}))]),
            ScriptedReply::tool_calls([("b", "fs_read", json!({"path": "missing.txt"}))]),
            ScriptedReply::context_overflow(),
            ScriptedReply::text(r#"{"task": "push", "next_steps": ["report"]}"#),
            ScriptedReply::text("all done"),
        ]);
        let fixture = fixture_with_model(&server, model);
        assert_eq!(fixture.capstan(&["run", "push it"]).succeeded().stdout, "all done\n", "{model}");
        let last = server.requests().pop().unwrap().to_string();
        for part in ["push it", "do not repeat", "echo pushed >> pushes.txt", "missing.txt", "(failed)"] {
            assert!(last.contains(part), "{model}: {part:?} is not in {last}");
        }
        assert_no_violations(&server);
        fixture.assert_undamaged();
    }
}

#[test]
fn a02_second_context_overflow_is_an_error() {
    for model in PROVIDER_MODELS {
        let replies =
            vec![ScriptedReply::context_overflow(), ScriptedReply::context_overflow(), ScriptedReply::text("better")];
        let server = ScriptedModel::start_blocking(replies);
        let fixture = fixture_with_model(&server, model);
        let output = fixture.capstan(&["run", "hello"]).refused("model-context-overflow", 1);
        assert!(!output.stderr.contains("[...]"), "{model}: the provider's message is quoted: {}", output.stderr);
        assert_eq!(fixture.capstan(&["run", "shorter"]).data(), "better\n", "{model}");
        fixture.assert_undamaged();
    }
}

#[test]
fn a08_reached_token_limit_is_reported_to_the_user_and_on_the_tape() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("half an ans").truncated()]);
        let fixture = fixture_with_model(&server, model);
        let output = fixture.capstan(&["run", "hello"]).succeeded();
        assert_eq!(output.stdout, "half an ans\n");
        assert!(output.stderr.contains("reached its limit of tokens"), "{}", output.stderr);
        assert_eq!(entries_named(&fixture.entries(), "run")[0]["payload"]["data"]["truncated"], json!(true), "{model}");
    }
}

#[test]
fn a01_call_truncated_by_the_token_limit_is_not_made_and_the_model_is_notified() {
    // Gemini and Ollama send a call whole or not at all.
    for model in
        PROVIDER_MODELS.into_iter().filter(|model| !model.starts_with("gemini") && !model.starts_with("ollama"))
    {
        let truncated_call =
            |arguments| ScriptedReply::tool_calls_verbatim([("a", "tape_info", arguments)]).truncated();
        let calls = [("b", "tape_anchors", "{}"), ("c", "tape_info", "")];
        let replies = vec![
            truncated_call("").with_text("So."),
            ScriptedReply::tool_calls_verbatim(calls).truncated(),
            ScriptedReply::text("ok"),
        ];
        let server = ScriptedModel::start_blocking(replies);
        let fixture = fixture_with_model(&server, model);
        assert_eq!(fixture.capstan(&["run", "hello"]).succeeded().stdout, "So.\n\nok\n", "{model}");
        let entries = fixture.entries();
        let made = entries_of_kind(&entries, "tool_call");
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(made[0]["payload"]["calls"][0]["function"]["name"], "tape_anchors", "{model}");
        for request in &server.requests()[1..] {
            let request = request.to_string();
            assert!(request.contains("in the middle of a call to tape_info, so that call was not made"), "{request}");
        }
        assert_no_violations(&server);
        fixture.assert_undamaged();

        let server = ScriptedModel::start_blocking(vec![
            truncated_call("{"),
            truncated_call(""),
            truncated_call("{\"a\": "),
            ScriptedReply::text("not requested"),
        ]);
        let output = fixture_with_model(&server, model).capstan(&["run", "hello"]).refused("model-broken", 1);
        assert!(output.stderr.contains("token limit in the middle of a tool call"), "{}", output.stderr);
        assert_eq!(server.requests().len(), 3);
    }
}

#[test]
fn a01_empty_reply_is_requested_once_more_and_is_then_an_error() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text(""), ScriptedReply::text("here")]);
        let fixture = fixture_with_model(&server, model);
        assert_eq!(fixture.capstan(&["run", "hello"]).data(), "here\n", "{model}");
        assert_no_violations(&server);
        fixture.assert_undamaged();

        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::text(""),
            ScriptedReply::text(""),
            ScriptedReply::text("better"),
        ]);
        let fixture = fixture_with_model(&server, model);
        let output = fixture.capstan(&["run", "hello"]).refused("model-broken", 1);
        assert!(output.stderr.contains("reply is empty"), "{model}: {}", output.stderr);
        assert_eq!(fixture.capstan(&["run", "again"]).data(), "better\n", "{model}");
        fixture.assert_undamaged();

        let thought = ScriptedReply::text("").with_reasoning("let me think").truncated();
        let output =
            fixture_with_model(&ScriptedModel::start_blocking(vec![thought]), model).capstan(&["run", "hello"]);
        let output = output.failed("model-broken", 1);
        assert!(output.stderr.contains("token limit before it had any text"), "{model}: {}", output.stderr);
    }
}

#[test]
fn a01_gemini_reply_without_parts_counts_as_empty() {
    let no_parts = || ScriptedReply::raw("data: {\"candidates\": [{\"finishReason\": \"STOP\", \"index\": 0}]}\n\n");
    let server = ScriptedModel::start_blocking(vec![no_parts(), no_parts()]);
    let output =
        fixture_with_model(&server, "gemini:gemini-3-pro").capstan(&["run", "hello"]).refused("model-broken", 1);
    assert!(output.stderr.contains("reply is empty"), "{}", output.stderr);
}

#[test]
fn a01_run_without_a_final_message_gives_a_notice() {
    for model in PROVIDER_MODELS {
        let call = ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "true"}))]).with_text("Let me look.");
        let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text(""), ScriptedReply::text("")]);
        let output = fixture_with_model(&server, model).capstan(&["run", "hello"]).succeeded();
        assert_eq!(output.stdout, "Let me look.\n", "{model}");
        assert!(output.stderr.contains("ended without a final message"), "{model}: {}", output.stderr);
    }
}

#[test]
fn a08_oversized_reply_is_cut_off_and_its_text_is_recorded() {
    let part = "x".repeat(3 << 20);
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text([part.as_str(); 3].join(" ")),
        ScriptedReply::text("short"),
    ]);
    let fixture = fixture_with_model(&server, PROVIDER_MODELS[0]);
    let output = fixture.capstan(&["run", "hello"]).failed("model-broken", 1);
    assert!(output.stderr.contains("more than the 8388608 bytes allowed"), "{}", output.stderr);
    let entries = fixture.entries();
    let message = entries_of_kind(&entries, "message").pop().unwrap();
    assert_eq!(message["meta"]["interrupted"], json!(true));
    assert!((6 << 20..=8 << 20).contains(&message["payload"]["content"].as_str().unwrap().len()));
    assert_eq!(fixture.capstan(&["run", "again"]).data(), "short\n");
}

#[test]
fn a08_stalled_reply_is_given_up_after_the_model_timeout() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = fixture_with_model(&server, PROVIDER_MODELS[0]).set("CAPSTAN_MODEL_TIMEOUT_SECONDS", "1");
    let output = fixture.capstan(&["run", "hello"]).failed("model-broken", 1);
    assert!(output.stderr.contains("no data within 1 seconds"), "{}", output.stderr);
    barrier.release();
    fixture.assert_undamaged();
}

#[test]
fn a08_invalid_json_arguments_are_reported_to_the_model() {
    for model in
        PROVIDER_MODELS.into_iter().filter(|model| !model.starts_with("gemini") && !model.starts_with("ollama"))
    {
        let calls = ScriptedReply::tool_calls_verbatim([("call_1", "bash", "{\"cmd\": "), ("call_2", "nothing", "{}")]);
        let server = ScriptedModel::start_blocking(vec![calls, ScriptedReply::text("sorry")]);
        let fixture = fixture_with_model(&server, model);
        assert_eq!(fixture.capstan(&["run", "hello"]).succeeded().stdout, "sorry\n", "{model}");
        let results = serde_json::to_string(&entries_of_kind(&fixture.entries(), "tool_result")).unwrap();
        assert!(results.contains("not valid JSON") && results.contains("nothing"), "{results}");
        assert_no_violations(&server);
    }
}
