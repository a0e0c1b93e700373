use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_hooks::args::{ErrorReport, ErrorStage, GrantedTools};
use capstan_hooks::points::OnError;
use capstan_hooks::{
    BoxError, HookDeadlines, HookRegistrar, HookRuntime, HookTurn, InboundEvent, LifespanHandler, Plugin, Registry,
    TurnLifespan,
};
use capstan_protocol::{Event, OutboundMessage, ResourceAccess, StreamEvent};

use super::TurnPipeline;
use crate::{ModelStage, ReplyTarget, StageEventSink, StageInput, StageReport, TurnContext, TurnError};

type Log = Arc<Mutex<Vec<String>>>;

/// Stage that panics.
struct PanickingStage;

#[async_trait]
impl ModelStage for PanickingStage {
    type Turn = ();
    type Report = ();

    fn granted_tools(&self, _: &InboundEvent, (): &()) -> GrantedTools {
        ResourceAccess::none().into()
    }

    async fn run(&self, _: StageInput, (): &(), _: &dyn StageEventSink) -> StageReport<()> {
        panic!("a defect of the host")
    }
}

/// Destination that shows and routes nothing.
struct NoTarget;

#[async_trait]
impl StageEventSink for NoTarget {
    async fn emit(&self, _: &StreamEvent) {}
}

impl ReplyTarget for NoTarget {
    fn route_outbound(&self, _: OutboundMessage) -> Option<OutboundMessage> {
        None
    }
}

/// Plugin that records the errors it observes.
struct ErrorRecorder(Log);

impl Plugin for ErrorRecorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let log = Arc::clone(&self.0);
        hooks.on(OnError, move |stage: ErrorStage, error: ErrorReport| {
            log.lock().unwrap().push(format!("{stage:?}: {}", error.public));
            async { Ok(None) }
        });
        Ok(())
    }
}

/// Lifespan that records how it is closed, and panics then.
struct PanickingLifespan(Log);

#[async_trait]
impl LifespanHandler for PanickingLifespan {
    async fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    async fn close(&self, failure: Option<&str>) -> Result<(), BoxError> {
        self.0.lock().unwrap().push(format!("closed: {failure:?}"));
        panic!("a defect of a channel")
    }
}

#[tokio::test]
async fn t11_panic_in_a_stage_is_reported_and_the_lifespan_is_closed() {
    let log = Log::default();
    let mut registry = Registry::new();
    registry.register(&ErrorRecorder(Arc::clone(&log)));
    let hooks = HookRuntime::new(registry, HookDeadlines::default());
    let inbound = InboundEvent::new(Event::message("cli", "local", "hello"));
    let lifespan = TurnLifespan::new(PanickingLifespan(Arc::clone(&log)));
    lifespan.open().await.unwrap();
    inbound.extensions().insert(lifespan);
    let pipeline = TurnPipeline::new(hooks, PanickingStage, "/workspace");
    let hook_turn = HookTurn::none();
    let context = TurnContext { turn: &(), reply_target: &NoTarget, hook_turn: &hook_turn };
    let report = pipeline.process(inbound, "s".into(), &context).await;
    assert_eq!(report.result, Err(TurnError::crashed("the turn")));
    assert_eq!(*log.lock().unwrap(), ["Turn: the turn crashed", "closed: Some(\"the run failed: the turn crashed\")"]);
}
