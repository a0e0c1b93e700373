//! The pipeline, stage by stage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_hooks::args::{
    BuildPromptArgs, DispatchMessage, DispatchOutboundArgs, ErrorReport, ErrorStage, LoadStateArgs, ModelText,
    PromptContent, RenderOutboundArgs, SaveStateArgs, TurnFailure,
};
use capstan_hooks::points::{
    BuildPrompt, DispatchOutbound, LoadState, RenderOutbound, RenderedOutbound, RunModel, SaveState,
};
use capstan_hooks::{HookError, HookRuntime, InboundEvent, TurnState};
use capstan_protocol::{Content, OutboundMessage, PluginName, SessionId, StreamEvent};

use crate::{ModelStage, StageEventSink, StageInput, StageOutcome, TurnError};

/// The pipeline every event takes. Cheap to clone.
#[derive(Clone)]
pub struct TurnPipeline {
    hooks: HookRuntime,
    stage: Arc<dyn ModelStage>,
    workspace: Arc<str>,
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// The output of the model stage.
    pub output: String,
    /// What was dispatched, in order.
    pub dispatched: Vec<DispatchReport>,
}

/// An outbound message and what each plugin said about sending it.
#[derive(Debug, Clone, PartialEq)]
pub struct DispatchReport {
    /// The message.
    pub outbound: OutboundMessage,
    /// Who said that it was sent, or staged, and who that it was not.
    pub sent_by: Vec<(PluginName, bool)>,
}

/// The output of a model stage that went through.
struct StageOutput {
    text: ModelText,
    silent: bool,
}

impl TurnPipeline {
    /// A pipeline over these hooks, for a workspace.
    pub fn new(hooks: HookRuntime, stage: Arc<dyn ModelStage>, workspace: &str) -> Self {
        Self { hooks, stage, workspace: Arc::from(workspace) }
    }

    /// Takes one event through the stages. Whatever is not handled is logged, told to the observers, and returned.
    pub async fn process(&self, inbound: InboundEvent, session: SessionId) -> Result<TurnReport, TurnError> {
        let turn = self.run_stages(&inbound, &session).await;
        if let Err(error) = &turn {
            if *error == TurnError::Cancelled {
                tracing::warn!(%session, "turn cancelled");
            } else {
                tracing::error!(%session, code = error.code().as_str(), %error, "turn failed");
            }
            self.hooks.notify_error(ErrorStage::Turn, error.to_report(), Some(inbound)).await;
        }
        turn
    }

    async fn run_stages(&self, inbound: &InboundEvent, session: &SessionId) -> Result<TurnReport, TurnError> {
        let state = self.load_state(inbound, session).await?;
        let prompt = build_prompt(&self.hooks, inbound, session, &state).await?;
        let input = StageInput { inbound: inbound.clone(), session: session.clone(), prompt, state: state.clone() };
        let output = self.run_model_stage_and_save_state(&input).await?;
        let outbounds = self.render_outbound(&input, &output).await?;
        let mut dispatched = Vec::new();
        for outbound in outbounds.into_iter().filter_map(|outbound| self.stage.route_outbound(outbound, inbound)) {
            dispatched.push(self.dispatch_outbound(inbound, outbound).await?);
        }
        Ok(TurnReport { output: output.text.to_string(), dispatched })
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

    /// From here on there is a prompt, so `save_state` runs whatever happens.
    async fn run_model_stage_and_save_state(&self, input: &StageInput) -> Result<StageOutput, TurnError> {
        let events = StageEventRelay::new(self, &input.inbound);
        let stage = self.run_model_stage(input, &events).await;
        if stage.is_err() {
            events.finish().await;
        }
        let text = match &stage {
            Ok(output) => output.text.clone(),
            Err(_) => ModelText(Arc::from(events.into_text())),
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

    async fn run_model_stage(
        &self,
        input: &StageInput,
        events: &StageEventRelay<'_>,
    ) -> Result<StageOutput, TurnError> {
        let output = |text: String, silent| StageOutput { text: ModelText(Arc::from(text)), silent };
        match self.stage.run(input.clone(), events).await? {
            StageOutcome::Output(text) => Ok(output(text, false)),
            StageOutcome::Silent => Ok(output(String::new(), true)),
            StageOutcome::NoOutput => Ok(output(self.fall_back_to_prompt(input).await, false)),
        }
    }

    /// No output at all: the observers are told, and the turn goes on with the prompt (or, for parts, the inbound text).
    async fn fall_back_to_prompt(&self, input: &StageInput) -> String {
        let words: Arc<str> = Arc::from("no plugin gave any model output");
        let fault = ErrorReport { detail: Arc::clone(&words), public: words };
        self.hooks.notify_error(ErrorStage::RunModel, fault, Some(input.inbound.clone())).await;
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

    /// Every plugin gets every message and says whether it was sent.
    pub async fn dispatch_outbound(
        &self,
        inbound: &InboundEvent,
        outbound: OutboundMessage,
    ) -> Result<DispatchReport, TurnError> {
        let args =
            DispatchOutboundArgs { message: DispatchMessage(Arc::new(outbound.clone())), inbound: inbound.clone() };
        let answers = self.hooks.call_all::<DispatchOutbound>(&args).await?;
        let sent = answers.into_iter().map(|answer| (answer.plugin, answer.value.unwrap_or(false))).collect();
        Ok(DispatchReport { outbound, sent_by: sent })
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

/// What the model stage emits: collected as far as it got, errors told to the observers, all of it shown to the channel.
struct StageEventRelay<'a> {
    turn: &'a TurnPipeline,
    inbound: &'a InboundEvent,
    text: Mutex<String>,
    /// Whether it said that nothing more comes.
    is_finished: AtomicBool,
}

impl<'a> StageEventRelay<'a> {
    fn new(turn: &'a TurnPipeline, inbound: &'a InboundEvent) -> Self {
        Self { turn, inbound, text: Mutex::default(), is_finished: AtomicBool::new(false) }
    }

    /// The stage was broken off, as one that is cancelled: whoever watches is told that nothing more comes.
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
                self.turn.hooks.notify_error(ErrorStage::RunModel, fault, Some(self.inbound.clone())).await;
            }
            StreamEvent::Reasoning { .. }
            | StreamEvent::ToolCall { .. }
            | StreamEvent::ToolResult { .. }
            | StreamEvent::Usage { .. }
            | StreamEvent::Waiting { .. } => {}
            StreamEvent::Final { .. } => self.is_finished.store(true, Ordering::Relaxed),
        }
        self.turn.stage.show_event(event, self.inbound).await;
    }
}
