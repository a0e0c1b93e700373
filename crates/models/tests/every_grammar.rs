//! Whatever a tape holds, what is sent obeys the rules of every provider (P13).

mod common;

use capstan_hooks::contracts::ModelProvider as _;
use capstan_models::{Provider, Settings, Wire};
use capstan_protocol::{ChatMessage, Content, ContentPart, ModelOptions, ModelRequest, Reasoning, Role, ToolCall};
use capstan_tape::conversation;
use capstan_testing::protocol::violations;
use proptest::prelude::*;

use common::request_to;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z]{1,8}( [a-z]{1,8}){0,3}",
        1 => Just(String::new()),
        1 => Just(" \n\t".to_owned()),
        1 => Just("你好 🐋 \"quoted\" \u{1}".to_owned()),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    let part = prop_oneof![
        text().prop_map(ContentPart::text),
        Just(ContentPart::image("data:image/png;base64,AA==")),
        Just(ContentPart::image("https://example.com/a.png")),
        Just(ContentPart::image("https://example.com/a.gif")),
        Just(ContentPart::image("data:image/gif;base64,AA==")),
        Just(ContentPart::image("data:image/svg+xml;base64,AA==")),
        Just(ContentPart::image("data:image/png,AA")),
        Just(ContentPart::Other([("type".to_owned(), "input_audio".into())].into_iter().collect())),
    ];
    prop_oneof![3 => text().prop_map(Content::Text), 1 => prop::collection::vec(part, 0..4).prop_map(Content::Parts)]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        "[abc]",
        Just(String::new()),
        // Alike once they are made to fit.
        "call[:/_]1",
        "x{39,45}",
        Just("functions.bash:0/ä".to_owned()),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,6}", Just("fs.read".to_owned()), Just("läs/en()".to_owned()), "[a-z.]{60,70}"]
}

fn call() -> impl Strategy<Value = ToolCall> {
    let arguments =
        prop_oneof!["\\{\\}", Just("{\"a\": 1}".to_owned()), Just("{not".to_owned()), Just("[1]".to_owned()), text()];
    (id(), name(), arguments).prop_map(|(id, name, arguments)| ToolCall::new(id, name, arguments))
}

fn message() -> impl Strategy<Value = ChatMessage> {
    let with_calls = (content(), prop::collection::vec(call(), 1..4));
    prop_oneof![
        content().prop_map(ChatMessage::user),
        content().prop_map(ChatMessage::assistant),
        content().prop_map(|content| ChatMessage { role: Role::System, ..ChatMessage::user(content) }),
        with_calls.prop_map(|(content, calls)| ChatMessage { content, ..ChatMessage::calls(calls) }),
        (id(), content()).prop_map(|(id, content)| ChatMessage::tool(id, "fs.read", content)),
    ]
}

fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::OpenAi | Wire::OpenRouter => "/v1/chat/completions",
        Wire::OpenAiResponses => "/v1/responses",
        Wire::Anthropic => "/v1/messages",
        Wire::Gemini => "/v1beta/models/gemini-3-pro:streamGenerateContent",
        Wire::Ollama => "/api/chat",
    }
}

proptest! {
    #[test]
    fn p13_what_is_sent_obeys_the_rules_of_every_provider(messages in prop::collection::vec(message(), 0..12)) {
        let messages = conversation::request(messages);
        for wire in Wire::ALL {
            let options = ModelOptions { reasoning: Some(Reasoning::Low), max_tokens: None };
            let request = ModelRequest { options, ..request_to(wire, messages.clone()) };
            let provider = Provider::new(wire.name(), wire, Settings::default(), Default::default());
            let body = serde_json::json!(provider.body(&request));
            let wrong = violations(path(wire), &body);
            prop_assert!(wrong.is_empty(), "{}: {wrong:?}\n{body:#}", wire.name());
        }
    }
}
