//! From the events of genai to ours.

use async_stream::stream;
use capstan_hooks::contracts::{ModelError, ModelEvent, ModelStream};
use capstan_protocol::Usage;
use futures::StreamExt as _;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd};

use super::calls::Calls;
use super::failure::Call;

/// Waits for the first event, so that a refused request is an error and not a stream; then hands the rest on.
pub(super) async fn begin(mut source: ChatStream, call: Call) -> Result<ModelStream, ModelError> {
    let mut next = next(&mut source, &call).await;
    if let Err(error) = next {
        return Err(error);
    }
    let events = stream! {
        let mut calls = Calls::default();
        loop {
            match next {
                Ok(ChatStreamEvent::Chunk(chunk)) => yield Ok(ModelEvent::Text(chunk.content)),
                Ok(ChatStreamEvent::ReasoningChunk(chunk)) => yield Ok(ModelEvent::Reasoning(chunk.content)),
                Ok(ChatStreamEvent::ToolCallChunk(chunk)) => calls.push(chunk.tool_call),
                Ok(ChatStreamEvent::End(end)) => {
                    for event in finish(end, calls, &call) {
                        yield event;
                    }
                    return;
                }
                // genai has no signatures from this kind of endpoint.
                Ok(
                    ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Start | ChatStreamEvent::Heartbeat
                ) => {}
                Err(error) => {
                    yield Err(error);
                    return;
                }
            }
            next = self::next(&mut source, &call).await;
        }
    };
    Ok(events.boxed())
}

/// The next event that says something; genai reports a start before it has sent anything.
async fn next(source: &mut ChatStream, call: &Call) -> Result<ChatStreamEvent, ModelError> {
    loop {
        match source.next().await {
            Some(Ok(ChatStreamEvent::Start)) => {}
            Some(Ok(event)) => return Ok(event),
            Some(Err(error)) => return Err(call.failure(&error)),
            None => return Err(call.broken("it ended before it was complete")),
        }
    }
}

/// What follows the last chunk: the calls, the usage, and that the answer is complete.
fn finish(end: StreamEnd, calls: Calls, call: &Call) -> Vec<Result<ModelEvent, ModelError>> {
    match &end.captured_stop_reason {
        None => return vec![Err(call.broken("it gave no reason for its end"))],
        Some(StopReason::ContentFilter(_)) => return vec![Err(call.filtered())],
        Some(reason) => tracing::debug!(model = call.model, reason = reason.raw(), "the model stopped"),
    }
    let usage = end.captured_usage.as_ref().and_then(usage);
    let ids: Vec<String> =
        end.captured_into_tool_calls().unwrap_or_default().into_iter().map(|call| call.call_id).collect();
    let Some(calls) = calls.finish(&ids) else {
        return vec![Err(call.broken("it calls a tool without a name"))];
    };
    let calls = calls.into_iter().map(ModelEvent::ToolCall);
    calls.chain(usage.map(ModelEvent::Usage)).chain([ModelEvent::Stop]).map(Ok).collect()
}

/// Both types have the field names of `OpenAI`; figures this crate does not know go to `extra`.
fn usage(usage: &genai::chat::Usage) -> Option<Usage> {
    serde_json::from_value(serde_json::to_value(usage).ok()?).ok()
}
