//! What each protocol refuses, as its provider does.

use capstan_testing::protocol::violations;
use serde_json::{Value, json};

const ANTHROPIC: &str = "/v1/messages";
const GEMINI: &str = "/v1beta/models/gemini-3-pro:streamGenerateContent";
const RESPONSES: &str = "/v1/responses";
const OLLAMA: &str = "/api/chat";

/// Asserts that a body is refused for this reason, and for no other.
#[track_caller]
fn refused(path: &str, body: &Value, reason: &str) {
    let found = violations(path, body);
    assert!(found.len() == 1 && found[0].contains(reason), "{reason:?} is not what is wrong: {found:?}");
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn anthropic(messages: &Value) -> Value {
    json!({"model": "m", "max_tokens": 100, "stream": true, "messages": messages})
}

#[test]
fn anthropic_wants_turns_that_alternate_and_results_where_they_belong() {
    let user = |blocks: Value| json!({"role": "user", "content": blocks});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": []});
    let said = |blocks: Value| json!({"role": "assistant", "content": blocks});
    let go = user(json!([text("go")]));
    let whole = anthropic(&json!([go, said(json!([call("a"), call("b")])), user(json!([result("b"), result("a")]))]));
    assert_eq!(violations(ANTHROPIC, &whole), Vec::<String>::new());

    refused(ANTHROPIC, &anthropic(&json!([go, go, go])), "not assistant");
    refused(ANTHROPIC, &anthropic(&json!([user(json!([text(" ")]))])), "a text is empty");
    let missing = anthropic(&json!([go, said(json!([call("a"), call("b")])), user(json!([result("a")]))]));
    refused(ANTHROPIC, &missing, "the call \"b\" is answered 0 times");
    let orphan = anthropic(&json!([go, said(json!([text("hm")])), user(json!([result("a")]))]));
    refused(ANTHROPIC, &orphan, "which the message before does not call");
    let forged = json!({"type": "thinking", "thinking": "hm", "signature": "mine"});
    refused(ANTHROPIC, &anthropic(&json!([go, said(json!([forged])), go])), "signature");
    let mut thinks = whole;
    thinks["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    thinks["max_tokens"] = json!(4096);
    refused(ANTHROPIC, &thinks, "begins with a thought");
}

#[test]
fn gemini_wants_responses_to_every_call_and_signatures() {
    let user = |parts: Value| json!({"role": "user", "parts": parts});
    let response = json!({"functionResponse": {"name": "bash", "response": {"result": ""}}});
    let model = |signature: &str| {
        let call = json!({"functionCall": {"name": "bash", "args": {}}, "thoughtSignature": signature});
        json!({"role": "model", "parts": [call]})
    };
    let go = user(json!([{"text": "go"}]));
    let signed = model("skip_thought_signature_validator");
    let body = |contents: Value| json!({ "contents": contents });
    assert_eq!(violations(GEMINI, &body(json!([go, signed, user(json!([response]))]))), Vec::<String>::new());

    refused(GEMINI, &body(json!([go, model("mine"), user(json!([response]))])), "thought_signature");
    refused(GEMINI, &body(json!([go, signed, go])), "0 responses to 1 calls");
    refused(GEMINI, &body(json!([user(json!([response]))])), "1 responses to 0 calls");
    refused(GEMINI, &body(json!([go, go, go])), "not of role model");
    refused(GEMINI, &json!({"contents": [go], "messages": []}), "\"messages\" is not known");
}

#[test]
fn responses_wants_outputs_for_every_call_and_knows_its_reasoning() {
    let body = |input: Value| json!({"model": "m", "stream": true, "store": false, "input": input});
    let go = json!({"role": "user", "content": [{"type": "input_text", "text": "go"}]});
    let call = json!({"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": ""});
    assert_eq!(violations(RESPONSES, &body(json!([go, call, output]))), Vec::<String>::new());

    refused(RESPONSES, &body(json!([go, call, output, output])), "answers no open call");
    let forged = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "mine"});
    refused(RESPONSES, &body(json!([go, forged, call, output])), "could not be verified");
    let mut stored = body(json!([go]));
    stored["store"] = json!(true);
    refused(RESPONSES, &stored, "keep the conversation");
    let unanswered = violations(RESPONSES, &body(json!([go, call])));
    assert!(unanswered.iter().any(|wrong| wrong.contains("no tool output was found")), "{unanswered:?}");
}

#[test]
fn ollama_wants_arguments_as_objects_and_answers_in_order() {
    let body = |messages: Value| json!({"model": "m", "stream": true, "messages": messages});
    let go = json!({"role": "user", "content": "go"});
    let call = |arguments: Value| {
        let call = json!({"function": {"name": "bash", "arguments": arguments}});
        json!({"role": "assistant", "content": "", "tool_calls": [call]})
    };
    let answer = |name: &str| json!({"role": "tool", "tool_name": name, "content": ""});
    assert_eq!(violations(OLLAMA, &body(json!([go, call(json!({})), answer("bash")]))), Vec::<String>::new());

    refused(OLLAMA, &body(json!([go, call(json!("{}")), answer("bash")])), "no object");
    refused(OLLAMA, &body(json!([go, call(json!({})), answer("other")])), "does not answer the next call");
    refused(OLLAMA, &body(json!([go, call(json!({}))])), "has no answer");
    let image = json!({"role": "user", "content": "look", "images": ["https://example.com/a.png"]});
    refused(OLLAMA, &body(json!([image])), "not in base64");
}
