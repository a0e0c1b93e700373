//! Backpressure: a channel that is slow to show stream events slows its own run only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Descriptor, Event, ResultBody, RunContext, RunResult};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;

use crate::sessions::test_channel::{ChannelRequest, TestChannel};

const DELTA_COUNT: usize = 1000;

/// Runner that yields [`DELTA_COUNT`] deltas and counts those consumed for the channel `slow`.
struct StreamingRunner(Arc<AtomicUsize>);

impl Runner for StreamingRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = capstan_protocol::RunnerCapabilities { streaming: true, ..Default::default() };
        Descriptor { capabilities, ..Descriptor::new("builtin:agent", "streaming") }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let is_slow = context.event.source.as_str() == "slow";
        let consumed = Arc::clone(&self.0);
        let delta = move |_| {
            consumed.fetch_add(usize::from(is_slow), Ordering::SeqCst);
            RunResult::from(ResultBody::MessageDelta { delta: "x".to_owned() })
        };
        let deltas = futures::stream::iter(0..DELTA_COUNT).map(delta);
        let end = RunResult::from(ResultBody::RunCompleted { silent: false });
        deltas.chain(futures::stream::iter([end])).boxed()
    }
}

#[tokio::test]
async fn g04_a_slow_channel_slows_its_own_runner_only() {
    let (barrier, consumed) = (ReplyBarrier::new(), Arc::new(AtomicUsize::new(0)));
    let channel_barrier = barrier.clone();
    let slow = Arc::new(TestChannel::with_waiting_callers("slow").with_behaviour(move |request| {
        let channel_barrier = channel_barrier.clone();
        matches!(request, ChannelRequest::Show(_)).then(|| {
            let wait: crate::sessions::test_channel::ChannelFuture = Box::pin(async move {
                channel_barrier.wait_for_release().await;
                Ok(())
            });
            wait
        })
    }));
    let quick = Arc::new(TestChannel::with_waiting_callers("quick"));
    let runner: Arc<dyn Runner> = Arc::new(StreamingRunner(Arc::clone(&consumed)));
    let streaming = ClosurePlugin::new("streaming", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&slow).channel(&quick).agent_plugin(streaming).start().await;

    let slow_turn = host.serve_in_background(Event::message("slow", "1", "go"));
    barrier.reached().await;
    let other = host.serve(Event::message("quick", "2", "go")).await.unwrap();
    assert_eq!(other.output.len(), DELTA_COUNT, "the other session continues");
    assert_eq!(consumed.load(Ordering::SeqCst), 1, "results are consumed only after they are shown");

    barrier.release();
    assert_eq!(slow_turn.await.unwrap().output.len(), DELTA_COUNT);
    assert_eq!(consumed.load(Ordering::SeqCst), DELTA_COUNT);
    environment.assert_settled().await;
}
