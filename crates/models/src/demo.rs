//! Demo model: offline, deterministic, and introduced as such in its first reply.

mod arguments;
mod call_marker;
mod pause_marker;
mod reply;

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelError, ModelEvent, ModelProvider, ModelStream};
use capstan_protocol::ModelRequest;
use futures::stream;
use futures::{FutureExt as _, StreamExt as _};

use reply::DemoReply;

/// Provider `demo`: repeats its input, calls tools on request, and says in its first reply that it is not a real model.
/// No key or network is needed, and equal requests get equal replies.
///
/// # Tool calls
///
/// Each marker of this form in a message requests one call:
///
/// ```text
/// [[tool:NAME key=value key2="quoted value"]]
/// ```
///
/// - `NAME` is the tool's own name (`fs.read`) or its model name (`fs_read`). An unknown name is called as well, so that
///   the resulting error can be tried out.
/// - Values are quoted as in a shell: `"..."` with `\"` and `\\`, `'...'` literally, `\` before a single character.
///   They are strings, except where the tool's schema asks for an integer, a number or a boolean and the value parses.
/// - One call is made per step, in the order of the markers. After the last result, the reply quotes all results.
/// - Call ids are `call_1`, `call_2` and so on within the conversation.
/// - A malformed marker is ordinary text.
///
/// Only the markers of the last user message count. A message that an agent adds between two steps (it directly follows
/// a tool result, starts with `Continue` and contains no marker) is skipped.
///
/// # Pauses
///
/// `[[slow:MILLISECONDS]]` inserts a pause before each word, at most five seconds: long enough to watch a reply stream,
/// to cancel it, or to send another message meanwhile.
///
/// # Reply text
///
/// The reply repeats the last user message without its markers and its context header (the lines up to one like
/// `---Date: 2026-11-15T20:57:42+00:00---`). Usage is counted in words.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use capstan_hooks::contracts::{ModelProvider, collect_output};
/// use capstan_models::DemoProvider;
/// use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};
///
/// let request = ModelRequest {
///     model: "demo:".parse().unwrap(),
///     system: String::new(),
///     messages: vec![ChatMessage::user("[[tool:bash cmd='echo one']] go")],
///     tools: [].into(),
///     options: ModelOptions::default(),
/// };
/// let output = collect_output(DemoProvider.stream(&request).await.unwrap()).await.unwrap();
/// assert_eq!(output.tool_calls[0].function.arguments, r#"{"cmd":"echo one"}"#);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct DemoProvider;

#[async_trait]
impl ModelProvider for DemoProvider {
    fn name(&self) -> &'static str {
        "demo"
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let reply = DemoReply::for_request(request);
        let usage = ModelEvent::Usage(reply.usage(request));
        let mut events = match reply {
            DemoReply::Call(call) => vec![ModelEvent::ToolCall(call)],
            DemoReply::Text(text) => {
                text.split_inclusive(char::is_whitespace).map(|word| ModelEvent::Text(word.to_owned())).collect()
            }
        };
        events.extend([usage, ModelEvent::Stop]);
        let events = stream::iter(events).map(Ok);
        Ok(match DemoReply::word_pause(request) {
            None => events.boxed(),
            Some(pause) => events.then(move |event| tokio::time::sleep(pause).map(|()| event)).boxed(),
        })
    }
}

#[cfg(test)]
mod tests;
