//! T7: the order of stream events.

use std::sync::Arc;

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_host::testing::TestEnvironment;
use capstan_protocol::{
    Descriptor, Event, PermissionSet, ResultBody, RunContext, RunResult, RunnerCapabilities, StreamEvent, ToolCall,
};
use futures::{FutureExt as _, StreamExt as _, stream};

use crate::sessions::test_channel::TestChannel;

/// Runner that calls a tool and has its first text ready in the poll in which the call ends.
struct PromptRunner;

impl Runner for PromptRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = RunnerCapabilities { streaming: true, multimodal_input: true, ..Default::default() };
        Descriptor { permissions: PermissionSet::all(), capabilities, ..Descriptor::new("builtin:agent", "prompt") }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let work = async move { api.tools.call(vec![ToolCall::new("call", "help", "{}")]).await.map(drop).unwrap() };
        let results = || {
            let delta = ResultBody::MessageDelta { delta: "done".to_owned() };
            [delta, ResultBody::RunCompleted { silent: false }].map(RunResult::from)
        };
        work.map(move |()| stream::iter(results())).flatten_stream().boxed()
    }
}

fn event_name(event: &StreamEvent) -> &'static str {
    match event {
        StreamEvent::ToolCall { .. } => "tool_call",
        StreamEvent::ToolResult { .. } => "tool_result",
        StreamEvent::Text { .. } => "text",
        StreamEvent::Final { .. } => "final",
        _ => "other",
    }
}

#[tokio::test]
async fn t07_the_result_of_a_call_precedes_the_text_that_follows_it() {
    let channel = Arc::new(TestChannel::with_waiting_callers("wire"));
    let environment = TestEnvironment::in_memory();
    let conversation = environment.host().channel(&channel).agent(PromptRunner).start().await;
    let served = conversation.serve(Event::message("wire", "1", "go")).await.unwrap();
    assert_eq!(served.output, "done");
    let shown: Vec<&str> = channel.shown().iter().map(event_name).collect();
    assert_eq!(shown, ["tool_call", "tool_result", "text", "final"]);
    conversation.stop().await.unwrap();
}
