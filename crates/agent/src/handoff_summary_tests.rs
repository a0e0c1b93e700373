use capstan_protocol::{ChatMessage, ToolCall};
use serde_json::{Value, json};

use super::{MAX_ITEMS, extract_state, has_history, read_summary, render_transcript, transcript_size};

fn calling(name: &str, arguments: &Value) -> ChatMessage {
    let mut message = ChatMessage::assistant("");
    message.tool_calls.push(ToolCall::new("a", name, arguments.to_string()));
    message
}

fn conversation() -> Vec<ChatMessage> {
    let state = json!({"owner": "human", "task": "all of it", "summary": "half done", "decisions": ["use Rust"], "files": ["old.rs", "a.rs"]});
    vec![
        ChatMessage::assistant(format!("[Anchor created: phase-1]: {state}")),
        ChatMessage::user("port it"),
        calling("fs_write", &json!({"path": "a.rs", "content": "x"})),
        calling("bash", &json!({"cmd": "ls", "path": "not-a-file"})),
        ChatMessage::assistant("a.rs is done"),
        calling("fs.read", &json!({"path": "b.rs"})),
    ]
}

#[test]
fn a02_extract_has_request_files_last_reply_and_earlier_decisions() {
    let state = extract_state(&conversation(), "port it");
    assert_eq!(
        Value::Object(state),
        json!({
            "task": "port it", "previous_task": "all of it", "summary": "half done", "decisions": ["use Rust"], "files": ["old.rs", "a.rs", "b.rs"],
            "last_reply": "a.rs is done", "written_by": "host",
        })
    );
}

#[test]
fn a02_summary_of_the_model_is_validated_and_bounded() {
    let reply = format!(
        "Here it is:\n```json\n{}\n```",
        json!({"task": " port it ", "decisions": "use Rust", "open_questions": [], "files": [1, null, "a.rs"],
            "reason": "mine", "error": "mine"})
    );
    let state = read_summary(&reply, extract_state(&conversation(), "port it"));
    assert_eq!(state["task"], "port it");
    assert_eq!((&state["decisions"], &state["files"]), (&json!(["use Rust"]), &json!(["1", "a.rs"])));
    assert!(!state.contains_key("open_questions") && !state.contains_key("reason") && !state.contains_key("error"));
    assert_eq!(state["written_by"], "model");
}

#[test]
fn a02_long_lists_of_the_model_keep_their_newest_items() {
    let items: Vec<String> = (0..30).map(|number| format!("{number} {}", "ä".repeat(200))).collect();
    let state = read_summary(&json!({"next_steps": items}).to_string(), Default::default());
    let steps = state["next_steps"].as_array().unwrap();
    assert_eq!(steps.len(), MAX_ITEMS);
    assert!(steps[0].as_str().unwrap().starts_with("10 ") && steps[0].as_str().unwrap().len() < 320);
}

#[test]
fn a02_reply_without_the_object_is_kept_as_text_and_an_empty_one_is_ignored() {
    let extract = extract_state(&conversation(), "port it");
    let prose = read_summary("We ported a.rs.", extract.clone());
    assert_eq!((&prose["summary"], &prose["written_by"]), (&json!("We ported a.rs."), &json!("model")));
    assert_eq!(prose["task"], "port it");
    for empty in ["", " \n", "{}"] {
        assert_eq!(read_summary(empty, extract.clone()), extract, "{empty:?}");
    }
}

#[test]
fn a02_transcript_has_the_anchor_and_the_newest_messages_within_its_limit() {
    let mut messages = conversation();
    messages.extend((0..50).map(|number| ChatMessage::user(format!("{number} {}", "x".repeat(1000)))));
    let size = transcript_size(&messages);
    for limit in [size / 2, size / 4, 1024] {
        let transcript = render_transcript(&messages, limit);
        assert!(transcript.len() < limit + 200, "{} of {limit}", transcript.len());
        assert!(
            transcript.contains("[Anchor created: phase-1]") && transcript.contains("user: 49 xxx"),
            "{transcript}"
        );
        assert!(transcript.contains("(earlier messages are left out)") && !transcript.contains("port it"));
    }
    let whole = render_transcript(&messages[..4], 100_000);
    assert!(whole.contains("assistant calls fs_write {") && !whole.contains("left out"), "{whole}");
}

#[test]
fn a02_view_of_the_current_messages_alone_has_no_history() {
    let anchor = || ChatMessage::assistant("[Anchor created: session/start]: {}");
    assert!(!has_history(&[anchor(), ChatMessage::user("one"), ChatMessage::user("two")]));
    assert!(has_history(&[anchor(), ChatMessage::user("one"), ChatMessage::assistant("hi")]));
    assert!(has_history(&conversation()));
}
