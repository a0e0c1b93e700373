//! A channel that is slow to show what a run says slows that run, and no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::protocol::{Descriptor, Event, ResultBody, RunContext, RunResult};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;

use crate::host_fixture::{HostFixture, boxed_plugin, serve_in_background};
use crate::test_channel::{ChannelRequest, TestChannel};

const DELTA_COUNT: usize = 1000;

/// Says a thousand pieces, and how many of them somebody took.
struct StreamingRunner(Arc<AtomicUsize>);

impl Runner for StreamingRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "talker")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let is_slow = context.event.source.as_str() == "slow";
        let taken = Arc::clone(&self.0);
        let delta = move |_| {
            taken.fetch_add(usize::from(is_slow), Ordering::SeqCst);
            RunResult::from(ResultBody::MessageDelta { delta: "x".to_owned() })
        };
        let pieces = futures::stream::iter(0..DELTA_COUNT).map(delta);
        let end = RunResult::from(ResultBody::RunCompleted { silent: false });
        pieces.chain(futures::stream::iter([end])).boxed()
    }
}

#[tokio::test]
async fn g04_a_slow_channel_slows_its_runner_and_nobody_else() {
    let (gate, taken) = (ReplyBarrier::new(), Arc::new(AtomicUsize::new(0)));
    let held = gate.clone();
    let slow = Arc::new(TestChannel::with_waiting_callers("slow").with_behaviour(move |asked| {
        let held = held.clone();
        matches!(asked, ChannelRequest::Show(_)).then(|| {
            let waits: crate::test_channel::ChannelFuture = Box::pin(async move {
                held.wait_for_release().await;
                Ok(())
            });
            waits
        })
    }));
    let quick = Arc::new(TestChannel::with_waiting_callers("quick"));
    let runner: Arc<dyn Runner> = Arc::new(StreamingRunner(Arc::clone(&taken)));
    let talks = boxed_plugin("talker", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&slow).channel(&quick).plugin(talks).start().await;

    let held_up = serve_in_background(&host, Event::message("slow", "1", "go"));
    gate.reached().await;
    let other = host.serve(Event::message("quick", "2", "go")).await.unwrap();
    assert_eq!(other.output.len(), DELTA_COUNT, "the other session goes on");
    assert_eq!(taken.load(Ordering::SeqCst), 1, "nothing is taken from the runner that nobody has shown");

    gate.release();
    assert_eq!(held_up.await.unwrap().output.len(), DELTA_COUNT);
    assert_eq!(taken.load(Ordering::SeqCst), DELTA_COUNT);
    house.assert_settled().await;
}
