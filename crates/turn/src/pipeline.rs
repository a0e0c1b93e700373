//! Pipeline of a turn, stage by stage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_hooks::args::{
    BuildPromptArgs, DispatchMessage, DispatchOutboundArgs, ErrorReport, ErrorStage, LoadStateArgs, ModelText,
    NoticeRequest, PromptContent, RenderOutboundArgs, SaveStateArgs, TurnFailure,
};
use capstan_hooks::points::{
    BuildPrompt, DispatchOutbound, LoadState, RenderOutbound, RenderedOutbound, RunModel, SaveState,
};
use capstan_hooks::{HookError, HookRuntime, InboundEvent, TurnState};
use capstan_protocol::{Content, OutboundMessage, SessionId, StreamEvent};

use crate::{
    DispatchReport, ModelStage, ReplyTarget, StageEventSink, StageInput, StageOutcome, TurnContext, TurnError,
    TurnReport,
};

/// Pipeline that every event takes.
pub struct TurnPipeline<S> {
    hooks: HookRuntime,
    stage: S,
    workspace: Arc<str>,
}

/// Output of a model stage that succeeded.
struct StageOutput {
    text: ModelText,
    silent: bool,
}

impl<S: ModelStage> TurnPipeline<S> {
    /// A pipeline over these hooks, for a workspace.
    pub fn new(hooks: HookRuntime, stage: S, workspace: &str) -> Self {
        Self { hooks, stage, workspace: Arc::from(workspace) }
    }

    /// Takes one event through the stages. An error that no stage handles is logged, reported to the observers, and
    /// returned with everything that the turn produced before it.
    pub async fn process(
        &self,
        inbound: InboundEvent,
        session: SessionId,
        context: &TurnContext<'_, S::Turn>,
    ) -> TurnReport<S::Report> {
        let notice = NoticeRequest::default();
        let mut report = TurnReport { result: Ok(String::new()), dispatched: Vec::new(), notice: None, run: None };
        report.result = self.run_stages(&inbound, &session, context, &notice, &mut report).await;
        if let Err(error) = &report.result {
            if *error == TurnError::Cancelled {
                tracing::warn!(%session, "turn cancelled");
            } else {
                tracing::error!(%session, code = error.code().as_str(), %error, "turn failed");
            }
            self.hooks.notify_error(ErrorStage::Turn, error.to_report(), Some(inbound), &notice).await;
        }
        TurnReport { notice: notice.text().map(str::to_owned), ..report }
    }

    async fn run_stages(
        &self,
        inbound: &InboundEvent,
        session: &SessionId,
        context: &TurnContext<'_, S::Turn>,
        notice: &NoticeRequest,
        report: &mut TurnReport<S::Report>,
    ) -> Result<String, TurnError> {
        let state = self.load_state(inbound, session).await?;
        let prompt = build_prompt(&self.hooks, inbound, session, &state).await?;
        let input = StageInput { inbound: inbound.clone(), session: session.clone(), prompt, state };
        let relay = StageEventRelay::new(&self.hooks, inbound, notice, context.reply_target);
        let ended = self.stage.run(input.clone(), context.turn, &relay).await;
        report.run = ended.run;
        let output = self.stage_output(&input, ended.outcome, notice).await;
        let output = self.save_state(&input, output, relay).await?;
        for outbound in self.render_outbound(&input, &output).await? {
            if let Some(outbound) = context.reply_target.route_outbound(outbound) {
                report.dispatched.push(self.dispatch_outbound(inbound, outbound).await?);
            }
        }
        Ok(output.text.to_string())
    }

    /// The workspace, then every plugin's map: the lowest priority first, so that the highest wins a key.
    async fn load_state(&self, inbound: &InboundEvent, session: &SessionId) -> Result<TurnState, TurnError> {
        let state = TurnState::new();
        state.set(TurnState::WORKSPACE_KEY, self.workspace.as_ref());
        let args = LoadStateArgs { message: inbound.clone(), session_id: session.clone() };
        let loaded = self.hooks.call_all::<LoadState>(&args).await?;
        for values in loaded.into_iter().rev().filter_map(|answer| answer.value) {
            state.merge(values);
        }
        Ok(state)
    }

    async fn stage_output(
        &self,
        input: &StageInput,
        outcome: Result<StageOutcome, TurnError>,
        notice: &NoticeRequest,
    ) -> Result<StageOutput, TurnError> {
        let output = |text: String, silent| StageOutput { text: ModelText(Arc::from(text)), silent };
        Ok(match outcome? {
            StageOutcome::Output(text) => output(text, false),
            StageOutcome::Silent => output(String::new(), true),
            StageOutcome::NoOutput => output(self.fall_back_to_prompt(input, notice).await, false),
        })
    }

    /// Runs `save_state`, whatever became of the model stage: there was a prompt.
    async fn save_state(
        &self,
        input: &StageInput,
        stage: Result<StageOutput, TurnError>,
        relay: StageEventRelay<'_>,
    ) -> Result<StageOutput, TurnError> {
        if stage.is_err() {
            relay.finish().await;
        }
        let text = match &stage {
            Ok(output) => output.text.clone(),
            Err(_) => ModelText(Arc::from(relay.into_text())),
        };
        let failure = stage.as_ref().err().map(|error| Arc::from(error.to_string()));
        let args = SaveStateArgs {
            session_id: input.session.clone(),
            state: input.state.clone(),
            message: input.inbound.clone(),
            model_output: text,
            failure: TurnFailure(failure),
        };
        let saved = self.hooks.call_all_despite_failures::<SaveState>(&args).await;
        if let (Err(_), Err(failure)) = (&stage, &saved) {
            tracing::warn!(plugin = %failure.plugin, reason = %failure.reason, "save_state failed after the turn had");
        }
        let output = stage?;
        saved?;
        Ok(output)
    }

    /// Tells the observers that there is no output. The turn continues with the prompt or, for parts, the inbound text.
    async fn fall_back_to_prompt(&self, input: &StageInput, notice: &NoticeRequest) -> String {
        let words: Arc<str> = Arc::from("no plugin gave any model output");
        let fault = ErrorReport { detail: Arc::clone(&words), public: words };
        self.hooks.notify_error(ErrorStage::RunModel, fault, Some(input.inbound.clone()), notice).await;
        let (text, origin) = match input.prompt.0.as_ref() {
            Content::Text(prompt) => (prompt.clone(), "the prompt"),
            Content::Parts(_) => (input.inbound.input.plain_text().to_owned(), "the inbound text"),
        };
        self.hooks.trace_fallback::<RunModel>(format!("{text:?}, {origin}"));
        text
    }

    /// Every plugin's messages, one batch after another; none at all means one with the model output.
    async fn render_outbound(
        &self,
        input: &StageInput,
        output: &StageOutput,
    ) -> Result<Vec<OutboundMessage>, TurnError> {
        let args = RenderOutboundArgs {
            message: input.inbound.clone(),
            session_id: input.session.clone(),
            state: input.state.clone(),
            model_output: output.text.clone(),
        };
        let batches = self.hooks.call_all::<RenderOutbound>(&args).await?;
        let mut silent = output.silent;
        let mut outbounds = Vec::new();
        for rendered in batches.into_iter().filter_map(|answer| answer.value) {
            match rendered {
                RenderedOutbound::Messages(messages) => outbounds.extend(messages),
                RenderedOutbound::Silent => silent = true,
            }
        }
        if silent {
            return Ok(Vec::new());
        }
        if outbounds.is_empty() {
            self.hooks.trace_fallback::<RenderOutbound>(format!("{:?}, the model output", &*output.text));
            outbounds.push(OutboundMessage::reply_to(&input.inbound, input.session.clone(), output.text.to_string()));
        }
        Ok(outbounds)
    }

    /// Passes a message to every plugin, each of which answers whether it sent or staged it.
    pub async fn dispatch_outbound(
        &self,
        inbound: &InboundEvent,
        outbound: OutboundMessage,
    ) -> Result<DispatchReport, TurnError> {
        let message = DispatchMessage::new(outbound.clone());
        let args = DispatchOutboundArgs { message: message.clone(), inbound: inbound.clone() };
        let answers = self.hooks.call_all::<DispatchOutbound>(&args).await?;
        let sent_by = answers.into_iter().map(|answer| (answer.plugin, answer.value.unwrap_or(false))).collect();
        Ok(DispatchReport { outbound, sent_by, is_staged: message.is_staged() })
    }
}

/// The first plugin's prompt; nothing, or an empty one it chose, means the inbound text.
pub async fn build_prompt(
    hooks: &HookRuntime,
    inbound: &InboundEvent,
    session: &SessionId,
    state: &TurnState,
) -> Result<PromptContent, HookError> {
    let args = BuildPromptArgs { message: inbound.clone(), session_id: session.clone(), state: state.clone() };
    let chosen = hooks.call_first::<BuildPrompt>(&args).await?.map(|decided| decided.value);
    if let Some(prompt) = chosen.filter(|prompt| !prompt.is_empty()) {
        return Ok(prompt.into());
    }
    let text = inbound.input.plain_text();
    hooks.trace_fallback::<BuildPrompt>(format!("{text:?}, the inbound text"));
    Ok(Content::from(text).into())
}

/// Sink of the model stage: collects the text, reports errors to the observers, and passes every event on.
struct StageEventRelay<'a> {
    hooks: &'a HookRuntime,
    inbound: &'a InboundEvent,
    notice: &'a NoticeRequest,
    target: &'a dyn ReplyTarget,
    text: Mutex<String>,
    /// A final event has passed.
    is_finished: AtomicBool,
}

impl<'a> StageEventRelay<'a> {
    fn new(
        hooks: &'a HookRuntime,
        inbound: &'a InboundEvent,
        notice: &'a NoticeRequest,
        target: &'a dyn ReplyTarget,
    ) -> Self {
        Self { hooks, inbound, notice, target, text: Mutex::default(), is_finished: AtomicBool::new(false) }
    }

    /// Emits a final event for a stage that was broken off without one, as a cancelled stage is.
    async fn finish(&self) {
        if self.is_finished.load(Ordering::Relaxed) {
            return;
        }
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.emit(&StreamEvent::Final { text, ok: false }).await;
    }

    fn into_text(self) -> String {
        self.text.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StageEventSink for StageEventRelay<'_> {
    async fn emit(&self, event: &StreamEvent) {
        match event {
            StreamEvent::Text { delta } => {
                self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(delta);
            }
            StreamEvent::Error { message } => {
                let words: Arc<str> = Arc::from(message.as_str());
                let fault = ErrorReport { detail: Arc::clone(&words), public: words };
                let inbound = Some(self.inbound.clone());
                self.hooks.notify_error(ErrorStage::RunModel, fault, inbound, self.notice).await;
            }
            StreamEvent::Reasoning { .. }
            | StreamEvent::ToolCall { .. }
            | StreamEvent::ToolResult { .. }
            | StreamEvent::Usage { .. }
            | StreamEvent::Waiting { .. } => {}
            StreamEvent::Final { .. } => self.is_finished.store(true, Ordering::Relaxed),
        }
        self.target.emit(event).await;
    }
}
