//! Requests that each protocol refuses, as its provider does.

use capstan_testing::protocol::violations;
use serde_json::{Value, json};

const ANTHROPIC_PATH: &str = "/v1/messages";
const GEMINI_PATH: &str = "/v1beta/models/gemini-3-pro:streamGenerateContent";
const RESPONSES_PATH: &str = "/v1/responses";
const OLLAMA_PATH: &str = "/api/chat";

/// Asserts that a body is refused for this reason only.
#[track_caller]
fn assert_refused(path: &str, body: &Value, reason: &str) {
    let violations_found = violations(path, body);
    assert!(
        violations_found.len() == 1 && violations_found[0].contains(reason),
        "expected one violation about {reason:?}, found {violations_found:?}"
    );
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn anthropic_request(messages: &Value) -> Value {
    json!({"model": "m", "max_tokens": 100, "stream": true, "messages": messages})
}

#[test]
fn anthropic_requires_alternating_turns_and_leading_tool_results() {
    let user = |blocks: Value| json!({"role": "user", "content": blocks});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": []});
    let assistant = |blocks: Value| json!({"role": "assistant", "content": blocks});
    let go = user(json!([text_block("go")]));
    let complete = anthropic_request(&json!([
        go,
        assistant(json!([call("a"), call("b")])),
        user(json!([result("b"), result("a")]))
    ]));
    assert_eq!(violations(ANTHROPIC_PATH, &complete), Vec::<String>::new());

    assert_refused(ANTHROPIC_PATH, &anthropic_request(&json!([go, go, go])), "not assistant");
    assert_refused(ANTHROPIC_PATH, &anthropic_request(&json!([user(json!([text_block(" ")]))])), "a text is empty");
    let missing = anthropic_request(&json!([go, assistant(json!([call("a"), call("b")])), user(json!([result("a")]))]));
    assert_refused(ANTHROPIC_PATH, &missing, "the call \"b\" is answered 0 times");
    let orphan = anthropic_request(&json!([go, assistant(json!([text_block("hm")])), user(json!([result("a")]))]));
    assert_refused(ANTHROPIC_PATH, &orphan, "which the message before does not call");
    let forged = json!({"type": "thinking", "thinking": "hm", "signature": "mine"});
    assert_refused(ANTHROPIC_PATH, &anthropic_request(&json!([go, assistant(json!([forged])), go])), "signature");
    let mut with_thinking = complete;
    with_thinking["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    with_thinking["max_tokens"] = json!(4096);
    assert_refused(ANTHROPIC_PATH, &with_thinking, "start with a thinking block");
}

#[test]
fn gemini_requires_a_response_to_every_call_and_signatures() {
    let user = |parts: Value| json!({"role": "user", "parts": parts});
    let response = json!({"functionResponse": {"name": "bash", "response": {"result": ""}}});
    let model = |signature: &str| {
        let call = json!({"functionCall": {"name": "bash", "args": {}}, "thoughtSignature": signature});
        json!({"role": "model", "parts": [call]})
    };
    let go = user(json!([{"text": "go"}]));
    let signed = model("skip_thought_signature_validator");
    let body = |contents: Value| json!({ "contents": contents });
    assert_eq!(violations(GEMINI_PATH, &body(json!([go, signed, user(json!([response]))]))), Vec::<String>::new());

    assert_refused(GEMINI_PATH, &body(json!([go, model("mine"), user(json!([response]))])), "thought_signature");
    assert_refused(GEMINI_PATH, &body(json!([go, signed, go])), "0 responses to 1 calls");
    assert_refused(GEMINI_PATH, &body(json!([user(json!([response]))])), "1 responses to 0 calls");
    assert_refused(GEMINI_PATH, &body(json!([go, go, go])), "not of role model");
    assert_refused(GEMINI_PATH, &json!({"contents": [go], "messages": []}), "unknown key \"messages\"");
}

#[test]
fn responses_requires_an_output_for_every_call_and_its_own_reasoning() {
    let body = |input: Value| json!({"model": "m", "stream": true, "store": false, "input": input});
    let go = json!({"role": "user", "content": [{"type": "input_text", "text": "go"}]});
    let call = json!({"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": ""});
    assert_eq!(violations(RESPONSES_PATH, &body(json!([go, call, output]))), Vec::<String>::new());

    assert_refused(RESPONSES_PATH, &body(json!([go, call, output, output])), "answers no open call");
    let forged = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "mine"});
    assert_refused(RESPONSES_PATH, &body(json!([go, forged, call, output])), "could not be verified");
    let mut stored = body(json!([go]));
    stored["store"] = json!(true);
    assert_refused(RESPONSES_PATH, &stored, "keep the conversation");
    let unanswered = violations(RESPONSES_PATH, &body(json!([go, call])));
    assert!(unanswered.iter().any(|wrong| wrong.contains("no tool output was found")), "{unanswered:?}");
}

#[test]
fn ollama_requires_arguments_as_objects_and_answers_in_order() {
    let body = |messages: Value| json!({"model": "m", "stream": true, "messages": messages});
    let go = json!({"role": "user", "content": "go"});
    let call = |arguments: Value| {
        let call = json!({"function": {"name": "bash", "arguments": arguments}});
        json!({"role": "assistant", "content": "", "tool_calls": [call]})
    };
    let answer = |name: &str| json!({"role": "tool", "tool_name": name, "content": ""});
    assert_eq!(violations(OLLAMA_PATH, &body(json!([go, call(json!({})), answer("bash")]))), Vec::<String>::new());

    assert_refused(OLLAMA_PATH, &body(json!([go, call(json!("{}")), answer("bash")])), "not an object");
    assert_refused(OLLAMA_PATH, &body(json!([go, call(json!({})), answer("other")])), "does not answer the next call");
    assert_refused(OLLAMA_PATH, &body(json!([go, call(json!({}))])), "has no answer");
    let image = json!({"role": "user", "content": "look", "images": ["https://example.com/a.png"]});
    assert_refused(OLLAMA_PATH, &body(json!([image])), "not in base64");
}
