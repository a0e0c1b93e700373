//! Counting tokens without a provider.

use capstan_protocol::{Content, ContentPart, ModelRequest};

/// What a message costs beside its words.
const PER_MESSAGE: u64 = 4;
/// What an image costs, as most providers count one of middling size.
const PER_IMAGE: u64 = 1000;

/// About how many tokens a request has: what a provider reports is always better.
///
/// Four letters of a western script are about a token, and so is one character of most others. It is no tokenizer: expect
/// it to be a quarter off, and more for code and numbers.
///
/// ```
/// use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};
///
/// let request = ModelRequest {
///     model: "demo:".parse().unwrap(),
///     system: "Be brief.".to_owned(),
///     messages: vec![ChatMessage::user("What is a capstan? 你好")],
///     tools: vec![],
///     options: ModelOptions::default(),
/// };
/// assert_eq!(capstan_models::estimate(&request), 14);
/// ```
pub fn estimate(request: &ModelRequest) -> u64 {
    let tools = request.tools.iter().map(|tool| {
        tokens(tool.name.as_str()) + tokens(&tool.description) + tokens(&tool.parameters.to_string()) + PER_MESSAGE
    });
    let messages = request.messages.iter().map(|message| {
        let calls = message.tool_calls.iter();
        let calls = calls.map(|call| tokens(&call.function.name) + tokens(&call.function.arguments) + PER_MESSAGE);
        content(&message.content) + calls.sum::<u64>() + PER_MESSAGE
    });
    tokens(&request.system) + tools.sum::<u64>() + messages.sum::<u64>()
}

fn content(content: &Content) -> u64 {
    match content {
        Content::Text(text) => tokens(text),
        Content::Parts(parts) => parts.iter().map(part).sum(),
    }
}

fn part(part: &ContentPart) -> u64 {
    part.as_text().map_or(PER_IMAGE, tokens)
}

fn tokens(text: &str) -> u64 {
    // In quarters of a token.
    let quarters: u64 = text.chars().map(|c| if c.is_ascii() { 1 } else { quarters_of(c) }).sum();
    quarters.div_ceil(4)
}

fn quarters_of(c: char) -> u64 {
    match u32::from(c) {
        // Latin, Greek and Cyrillic are a little denser than English.
        0x80..=0x52F => 2,
        _ => 4,
    }
}
