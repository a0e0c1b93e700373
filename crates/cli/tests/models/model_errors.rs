//! What a user has when a model is in trouble.

use capstan::Capstan;
use capstan::protocol::Event;
use capstan_protocol::Clock;
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::json;

use crate::cli_support::{entries_named, entries_of_kind};
use crate::provider::{PROVIDER_MODELS, assert_no_violations, fixture_with_model};

fn refusal_reply(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not now"}}"#).with_header("retry-after-ms", "1")
}

#[test]
fn a8_two_refusals_that_pass_are_not_noticed() {
    for model in PROVIDER_MODELS {
        let replies = vec![
            refusal_reply(429),
            refusal_reply(429),
            ScriptedReply::text("here I am"),
            refusal_reply(500),
            ScriptedReply::text("again"),
        ];
        let server = ScriptedModel::start_blocking(replies);
        let place = fixture_with_model(&server, model);
        assert_eq!(place.capstan(&["run", "hello"]).data(), "here I am\n", "{model}");
        assert_eq!(place.capstan(&["run", "hello"]).data(), "again\n", "{model}");
        assert_eq!(entries_named(&place.entries(), "model.call").len(), 2, "what is sent again is one call");
        place.assert_undamaged();
    }
}

#[test]
fn a8_whoever_waits_for_a_model_is_told_why_and_how_long() {
    let later =
        ScriptedReply::status(503, r#"{"error": {"message": "too busy"}}"#).with_header("retry-after-ms", "1000");
    let server = ScriptedModel::start_blocking(vec![later, ScriptedReply::text("here I am")]);
    let said = fixture_with_model(&server, PROVIDER_MODELS[0]).capstan(&["run", "hello"]).succeeded();
    assert_eq!(said.stdout, "here I am\n");
    let told: Vec<&str> = said.stderr.lines().collect();
    assert!(told.len() == 1 && told[0].contains("answered 503"), "{said:?}");
    assert!(told[0].ends_with("too busy; retrying in 2 s"), "{said:?}");
}

#[test]
fn a8_an_answer_that_breaks_off_is_shown_as_far_as_it_came_and_the_next_run_works() {
    for model in PROVIDER_MODELS {
        for broken in
            [ScriptedReply::disconnect_after("half of it"), ScriptedReply::error_after("half of it", "I fell over")]
        {
            let server = ScriptedModel::start_blocking(vec![broken, ScriptedReply::text("whole")]);
            let place = fixture_with_model(&server, model);
            let said = place.capstan(&["run", "hello"]).failed("model-broken", 1);
            assert_eq!(said.stdout.trim_end(), "half of it", "{model}");
            assert_eq!(place.capstan(&["run", "again"]).data(), "whole\n", "{model}");
            assert_no_violations(&server);
            place.assert_undamaged();
        }
    }
}

#[test]
fn a8_garbage_is_an_error_and_not_an_answer() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::invalid_json(), ScriptedReply::text("sense")]);
        let place = fixture_with_model(&server, model);
        place.capstan(&["run", "hello"]).refused("model-broken", 1);
        assert_eq!(place.capstan(&["run", "again"]).data(), "sense\n", "{model}");
        place.assert_undamaged();
    }
}

#[test]
fn a2_a_context_that_is_too_long_begins_anew_once() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::text("hi"),
            ScriptedReply::context_overflow(),
            ScriptedReply::text("short now"),
        ]);
        let place = fixture_with_model(&server, model);
        place.capstan(&["run", "hello"]).data();
        assert_eq!(place.capstan(&["run", "and a long one"]).data(), "short now\n", "{model}");
        let entries = place.entries();
        assert_eq!(entries_named(&entries, "auto_handoff/context_overflow").len(), 1, "{model}");
        let last = server.requests().pop().unwrap().to_string();
        assert!(last.contains("and a long one") && !last.contains("hello"), "{model}: {last}");
        assert_no_violations(&server);
        place.assert_undamaged();
    }
}

#[test]
fn a2_what_was_done_before_a_context_begins_anew_is_told_so_that_it_is_not_done_again() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "echo pushed >> pushes.txt"}))]),
            ScriptedReply::tool_calls([("b", "fs_read", json!({"path": "missing.txt"}))]),
            ScriptedReply::context_overflow(),
            ScriptedReply::text("all done"),
        ]);
        let place = fixture_with_model(&server, model);
        assert_eq!(place.capstan(&["run", "push it"]).succeeded().stdout, "all done\n", "{model}");
        let last = server.requests().pop().unwrap().to_string();
        for told in ["push it", "do not repeat", "echo pushed >> pushes.txt", "missing.txt", "(failed)"] {
            assert!(last.contains(told), "{model}: {told:?} is not in {last}");
        }
        assert_no_violations(&server);
        place.assert_undamaged();
    }
}

#[test]
fn a2_a_context_that_stays_too_long_is_an_error() {
    for model in PROVIDER_MODELS {
        let replies =
            vec![ScriptedReply::context_overflow(), ScriptedReply::context_overflow(), ScriptedReply::text("better")];
        let server = ScriptedModel::start_blocking(replies);
        let place = fixture_with_model(&server, model);
        let said = place.capstan(&["run", "hello"]).refused("model-context-overflow", 1);
        assert!(!said.stderr.contains("[...]"), "{model}: what the provider said is told: {}", said.stderr);
        assert_eq!(place.capstan(&["run", "shorter"]).data(), "better\n", "{model}");
        place.assert_undamaged();
    }
}

#[test]
fn a_limit_of_tokens_is_told_to_the_user_and_on_the_tape() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("half an ans").truncated()]);
        let place = fixture_with_model(&server, model);
        let said = place.capstan(&["run", "hello"]).succeeded();
        assert_eq!(said.stdout, "half an ans\n");
        assert!(said.stderr.contains("reached its limit of tokens"), "{}", said.stderr);
        assert_eq!(entries_named(&place.entries(), "run")[0]["payload"]["data"]["truncated"], json!(true), "{model}");
    }
}

#[test]
fn a1_a_call_that_the_limit_cuts_off_is_not_made_and_the_model_is_told() {
    // The others send a call whole or not at all.
    for model in
        PROVIDER_MODELS.into_iter().filter(|model| !model.starts_with("gemini") && !model.starts_with("ollama"))
    {
        let cut = |arguments| ScriptedReply::tool_calls_verbatim([("a", "tape_info", arguments)]).truncated();
        let both = [("b", "tape_anchors", "{}"), ("c", "tape_info", "")];
        let replies = vec![
            cut("").with_text("So."),
            ScriptedReply::tool_calls_verbatim(both).truncated(),
            ScriptedReply::text("ok"),
        ];
        let server = ScriptedModel::start_blocking(replies);
        let place = fixture_with_model(&server, model);
        assert_eq!(place.capstan(&["run", "hello"]).succeeded().stdout, "So.\n\nok\n", "{model}");
        let entries = place.entries();
        let made = entries_of_kind(&entries, "tool_call");
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(made[0]["payload"]["calls"][0]["function"]["name"], "tape_anchors", "{model}");
        for request in &server.requests()[1..] {
            let request = request.to_string();
            assert!(request.contains("in the middle of a call to tape_info, so that call was not made"), "{request}");
        }
        assert_no_violations(&server);
        place.assert_undamaged();

        let server =
            ScriptedModel::start_blocking(vec![cut("{"), cut(""), cut("{\"a\": "), ScriptedReply::text("not asked")]);
        let said = self::fixture_with_model(&server, model).capstan(&["run", "hello"]).refused("model-broken", 1);
        assert!(said.stderr.contains("token limit in the middle of a tool call"), "{}", said.stderr);
        assert_eq!(server.requests().len(), 3);
    }
}

#[test]
fn a1_an_answer_that_says_nothing_is_asked_for_once_more_and_is_then_an_error() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text(""), ScriptedReply::text("here")]);
        let place = self::fixture_with_model(&server, model);
        assert_eq!(place.capstan(&["run", "hello"]).data(), "here\n", "{model}");
        assert_no_violations(&server);
        place.assert_undamaged();

        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::text(""),
            ScriptedReply::text(""),
            ScriptedReply::text("better"),
        ]);
        let place = self::fixture_with_model(&server, model);
        let said = place.capstan(&["run", "hello"]).refused("model-broken", 1);
        assert!(said.stderr.contains("reply is empty"), "{model}: {}", said.stderr);
        assert_eq!(place.capstan(&["run", "again"]).data(), "better\n", "{model}");
        place.assert_undamaged();

        let thought = ScriptedReply::text("").with_reasoning("let me think").truncated();
        let said =
            self::fixture_with_model(&ScriptedModel::start_blocking(vec![thought]), model).capstan(&["run", "hello"]);
        let said = said.failed("model-broken", 1);
        assert!(said.stderr.contains("token limit before it had any text"), "{model}: {}", said.stderr);
    }
}

#[test]
fn a1_an_answer_of_gemini_without_any_part_is_an_error_as_every_empty_one_is() {
    let nothing = || ScriptedReply::raw("data: {\"candidates\": [{\"finishReason\": \"STOP\", \"index\": 0}]}\n\n");
    let server = ScriptedModel::start_blocking(vec![nothing(), nothing()]);
    let said = fixture_with_model(&server, "gemini:gemini-3-pro").capstan(&["run", "hello"]).refused("model-broken", 1);
    assert!(said.stderr.contains("reply is empty"), "{}", said.stderr);
}

#[test]
fn a1_whoever_gets_no_last_word_is_told_so() {
    for model in PROVIDER_MODELS {
        let call = ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "true"}))]).with_text("Let me look.");
        let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text(""), ScriptedReply::text("")]);
        let said = fixture_with_model(&server, model).capstan(&["run", "hello"]).succeeded();
        assert_eq!(said.stdout, "Let me look.\n", "{model}");
        assert!(said.stderr.contains("ended without a final message"), "{model}: {}", said.stderr);
    }
}

#[test]
fn a8_an_answer_that_is_too_long_is_broken_off_and_what_came_is_kept() {
    let part = "x".repeat(3 << 20);
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text([part.as_str(); 3].join(" ")),
        ScriptedReply::text("short"),
    ]);
    let place = fixture_with_model(&server, PROVIDER_MODELS[0]);
    let said = place.capstan(&["run", "hello"]).failed("model-broken", 1);
    assert!(said.stderr.contains("more than the 8388608 bytes allowed"), "{}", said.stderr);
    let entries = place.entries();
    let kept = entries_of_kind(&entries, "message").pop().unwrap();
    assert_eq!(kept["meta"]["interrupted"], json!(true));
    assert!((6 << 20..=8 << 20).contains(&kept["payload"]["content"].as_str().unwrap().len()));
    assert_eq!(place.capstan(&["run", "again"]).data(), "short\n");
}

#[test]
fn a8_an_answer_that_does_not_go_on_is_given_up_in_time() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = fixture_with_model(&server, PROVIDER_MODELS[0]).set("CAPSTAN_MODEL_TIMEOUT_SECONDS", "1");
    let said = place.capstan(&["run", "hello"]).failed("model-broken", 1);
    assert!(said.stderr.contains("no data within 1 seconds"), "{}", said.stderr);
    gate.release();
    place.assert_undamaged();
}

#[test]
fn a8_arguments_that_are_no_json_are_told_to_the_model() {
    for model in
        PROVIDER_MODELS.into_iter().filter(|model| !model.starts_with("gemini") && !model.starts_with("ollama"))
    {
        let calls = ScriptedReply::tool_calls_verbatim([("call_1", "bash", "{\"cmd\": "), ("call_2", "nothing", "{}")]);
        let server = ScriptedModel::start_blocking(vec![calls, ScriptedReply::text("sorry")]);
        let place = fixture_with_model(&server, model);
        assert_eq!(place.capstan(&["run", "hello"]).succeeded().stdout, "sorry\n", "{model}");
        let results = serde_json::to_string(&entries_of_kind(&place.entries(), "tool_result")).unwrap();
        assert!(results.contains("not valid JSON") && results.contains("nothing"), "{results}");
        assert_no_violations(&server);
    }
}

#[tokio::test]
async fn a8_when_to_come_back_goes_by_the_clock_of_the_host() {
    let later = ScriptedReply::status(429, "{}").with_header("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT");
    let server = ScriptedModel::start(vec![later, ScriptedReply::text("here I am")]).await;
    let workspace = tempfile::tempdir().unwrap();
    let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path());
    let builder = builder.set("model", "openai:m").set("api_base", &server.base_url());
    let host = builder.clock(Clock::new(|| "2100-01-01T00:00:00+00:00".parse().unwrap())).start().await.unwrap();
    assert_eq!(host.serve(Event::message("cli", "local", "hi")).await.unwrap().output, "here I am");
}
