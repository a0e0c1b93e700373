//! Property test: for any tape, the request obeys the rules of every provider (P13).

use capstan_hooks::contracts::ModelProvider as _;
use capstan_models::{Provider, ProviderOptions, WireProtocol};
use capstan_protocol::{
    ChatMessage, Content, ContentPart, MessageRole, ModelOptions, ModelRequest, Reasoning, ToolCall,
};
use capstan_tape::conversation;
use capstan_testing::protocol::violations;
use proptest::prelude::*;

use crate::common::request_for;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z]{1,8}( [a-z]{1,8}){0,3}",
        1 => Just(String::new()),
        1 => Just(" \n\t".to_owned()),
        1 => Just("你好 🐋 \"quoted\" \u{1}".to_owned()),
    ]
}

fn any_content() -> impl Strategy<Value = Content> {
    let part = prop_oneof![
        any_text().prop_map(ContentPart::from_text),
        Just(ContentPart::from_image_url("data:image/png;base64,AA==")),
        Just(ContentPart::from_image_url("https://example.com/a.png")),
        Just(ContentPart::from_image_url("https://example.com/a.gif")),
        Just(ContentPart::from_image_url("data:image/gif;base64,AA==")),
        Just(ContentPart::from_image_url("data:image/svg+xml;base64,AA==")),
        Just(ContentPart::from_image_url("data:image/png,AA")),
        Just(ContentPart::Other([("type".to_owned(), "input_audio".into())].into_iter().collect())),
    ];
    prop_oneof![3 => any_text().prop_map(Content::Text), 1 => prop::collection::vec(part, 0..4).prop_map(Content::Parts)]
}

fn any_call_id() -> impl Strategy<Value = String> {
    prop_oneof![
        "[abc]",
        Just(String::new()),
        // Equal after sanitizing.
        "call[:/_]1",
        "x{39,45}",
        Just("functions.bash:0/ä".to_owned()),
    ]
}

fn any_tool_name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,6}", Just("fs.read".to_owned()), Just("läs/en()".to_owned()), "[a-z.]{60,70}"]
}

fn any_call() -> impl Strategy<Value = ToolCall> {
    let arguments = prop_oneof![
        "\\{\\}",
        Just("{\"a\": 1}".to_owned()),
        Just("{not".to_owned()),
        Just("[1]".to_owned()),
        any_text()
    ];
    (any_call_id(), any_tool_name(), arguments).prop_map(|(id, name, arguments)| ToolCall::new(id, name, arguments))
}

fn any_message() -> impl Strategy<Value = ChatMessage> {
    let with_calls = (any_content(), prop::collection::vec(any_call(), 1..4));
    prop_oneof![
        any_content().prop_map(ChatMessage::user),
        any_content().prop_map(ChatMessage::assistant),
        any_content().prop_map(|content| ChatMessage { role: MessageRole::System, ..ChatMessage::user(content) }),
        with_calls.prop_map(|(content, calls)| ChatMessage { content, ..ChatMessage::from_tool_calls(calls) }),
        (any_call_id(), any_content()).prop_map(|(id, content)| ChatMessage::tool_result(id, "fs.read", content)),
    ]
}

fn endpoint_path(wire: WireProtocol) -> &'static str {
    match wire {
        WireProtocol::OpenAi | WireProtocol::OpenRouter => "/v1/chat/completions",
        WireProtocol::OpenAiResponses => "/v1/responses",
        WireProtocol::Anthropic => "/v1/messages",
        WireProtocol::Gemini => "/v1beta/models/gemini-3-pro:streamGenerateContent",
        WireProtocol::Ollama => "/api/chat",
    }
}

proptest! {
    #[test]
    fn p13_any_conversation_obeys_the_rules_of_every_provider(messages in prop::collection::vec(any_message(), 0..12)) {
        let messages = conversation::normalize_request(messages);
        for wire in WireProtocol::PROTOCOLS {
            let options = ModelOptions { reasoning: Some(Reasoning::Low), ..ModelOptions::default() };
            let request = ModelRequest { options, ..request_for(wire, messages.clone()) };
            let provider = Provider::new(wire.name(), wire, ProviderOptions::default(), Default::default());
            let body = serde_json::json!(provider.request_body(&request));
            let violations = violations(endpoint_path(wire), &body);
            prop_assert!(violations.is_empty(), "{}: {violations:?}\n{body:#}", wire.name());
        }
    }
}
