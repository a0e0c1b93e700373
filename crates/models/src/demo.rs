//! The demo model: offline, deterministic, and open about what it is.

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

/// The provider `demo`: it repeats what it got, calls tools when asked, and says in its first reply that it is no real
/// model. It needs neither key nor network, and the same request always gets the same answer.
///
/// # Calling tools
///
/// Each marker of this form in a message asks for one call:
///
/// ```text
/// [[tool:NAME key=value key2="quoted value"]]
/// ```
///
/// - `NAME` is a tool by the name people use (`fs.read`) or the one models see (`fs_read`). A name nobody offers is
///   called as well, so that the error can be tried.
/// - Values are quoted as in a shell: `"..."` with `\"` and `\\`, `'...'` as it stands, `\` before a single character.
///   They are strings, except where the tool's schema wants an integer, a number or a boolean and the value is one.
/// - One call is made per step, in the order of the markers. When all are answered, the reply quotes the results.
/// - Calls are named `call_1`, `call_2` and so on within the conversation.
/// - A marker that is not well formed is text like any other.
///
/// The markers that count are those of the last user message. A message an agent adds by itself between two steps (it
/// directly follows a tool's answer, has no context header, asks for no call) does not count as one.
///
/// # Taking its time
///
/// `[[slow:MILLISECONDS]]` makes it pause before each word, five seconds at most: long enough to see how a reply
/// streams, to cancel it, or to say something meanwhile.
///
/// # What it repeats
///
/// The last user message, without its markers and without its context header (the lines up to one like
/// `---Date: 2026-11-15T20:57:42+00:00---`). As usage it reports words.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use capstan_hooks::contracts::{ModelProvider, collect};
/// use capstan_models::Demo;
/// use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};
///
/// let request = ModelRequest {
///     model: "demo:".parse().unwrap(),
///     system: String::new(),
///     messages: vec![ChatMessage::user("[[tool:bash cmd='echo one']] go")],
///     tools: [].into(),
///     options: ModelOptions::default(),
/// };
/// let output = collect(Demo.stream(&request).await.unwrap()).await.unwrap();
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
        let answer = DemoReply::for_request(request);
        let usage = ModelEvent::Usage(answer.usage(request));
        let mut events = match answer {
            DemoReply::Call(call) => vec![ModelEvent::ToolCall(call)],
            DemoReply::Text(text) => {
                text.split_inclusive(char::is_whitespace).map(|word| ModelEvent::Text(word.to_owned())).collect()
            }
        };
        events.extend([usage, ModelEvent::Stop]);
        let events = stream::iter(events).map(Ok);
        Ok(match DemoReply::word_pause(request) {
            None => events.boxed(),
            Some(pace) => events.then(move |event| tokio::time::sleep(pace).map(|()| event)).boxed(),
        })
    }
}

#[cfg(test)]
mod tests;
