//! The same conversation with every provider, through the binary.

use capstan_testing::providers::two_turn_replies;
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use super::provider::{PROVIDER_MODELS, assert_no_violations, fixture_with_model, provider_base_url};

#[test]
fn a08_every_provider_answers_and_calls_tools_through_the_binary() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(two_turn_replies());
        let fixture = fixture_with_model(&server, model).set("CAPSTAN_REASONING", "low");
        assert_eq!(
            fixture.capstan(&["run", "what is this?"]).succeeded().stdout,
            "Let me look.\n\nIt is a pixel.\n",
            "{model}"
        );
        assert_eq!(fixture.capstan(&["run", "and now?"]).data(), "Still a pixel.\n", "{model}");
        assert_no_violations(&server);
        fixture.assert_undamaged();
    }
}

#[test]
fn p15_recorded_context_equals_the_request_that_each_provider_received() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(two_turn_replies());
        let fixture = fixture_with_model(&server, model).set("CAPSTAN_REASONING", "low");
        fixture.capstan(&["run", "what is this?"]).succeeded();
        let calls = fixture.capstan(&["tape", "context"]).json();
        let calls = calls.as_array().unwrap();
        assert_eq!(calls.len(), 3, "{model}");
        for (call, request) in calls.iter().zip(server.requests()) {
            let mut body = call["rest"].clone();
            if !call["tools"].as_array().unwrap().is_empty() {
                body["tools"] = call["tools"].clone();
            }
            let key = call["messages_key"].as_str().unwrap_or("messages");
            body[key] = call["messages"].clone();
            assert_eq!(body, request, "{model}");
        }
    }
}

#[test]
fn a08_session_changes_models_between_turns_and_returns() {
    let server = ScriptedModel::start_blocking_with(|_, answered| {
        let call = |name: &str| (format!("call_{name}_{answered}"), "bash".to_owned(), json!({"cmd": "echo hi"}));
        if answered % 2 == 0 {
            ScriptedReply::tool_calls([call("a"), call("b")]).with_reasoning("let me see")
        } else {
            ScriptedReply::text("done").with_reasoning("that was it")
        }
    });
    let mut fixture = fixture_with_model(&server, PROVIDER_MODELS[2]).set("CAPSTAN_REASONING", "low");
    for model in PROVIDER_MODELS.into_iter().chain(PROVIDER_MODELS).rev() {
        fixture = fixture.set("CAPSTAN_MODEL", model).set("CAPSTAN_API_BASE", &provider_base_url(&server, model));
        assert_eq!(fixture.capstan(&["run", "go"]).succeeded().stdout, "done\n", "{model}: {:?}", server.violations());
    }
    assert_no_violations(&server);
}
