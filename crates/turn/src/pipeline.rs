//! Pipeline of a turn, stage by stage.

use std::borrow::Cow;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_hooks::args::{
    BuildPromptArgs, DispatchMessage, DispatchOutboundArgs, ErrorReport, ErrorStage, GrantedTools, LoadStateArgs,
    ModelContent, ModelText, NoticeRequest, PromptContent, RenderOutboundArgs, SaveStateArgs, TurnFailure,
};
use capstan_hooks::points::{
    BuildPrompt, DispatchOutbound, LoadState, RenderOutbound, RenderedOutbound, RunModel, SaveState,
};
use capstan_hooks::{HookError, HookRuntime, HookTurn, InboundEvent, TurnState};
use capstan_protocol::{Content, FailureCode, JsonObject, OutboundMessage, PluginName, SessionId, StreamEvent};
use futures::FutureExt as _;

use crate::lifespan::close_lifespan;
use crate::{
    DispatchReport, ModelStage, ReplyTarget, StageEventSink, StageInput, StageOutcome, TurnContext, TurnError,
    TurnReport,
};

/// Pipeline that processes every event.
pub struct TurnPipeline<S> {
    hooks: HookRuntime,
    stage: S,
    workspace: Arc<str>,
    /// Plugins that set another workspace, each of which is warned about once.
    workspace_overriders: Mutex<HashSet<PluginName>>,
}

/// Output of a model stage that succeeded.
struct StageOutput {
    text: ModelText,
    content: ModelContent,
    silent: bool,
}

impl<S: ModelStage> TurnPipeline<S> {
    /// Creates a pipeline over these hooks, for a workspace.
    pub fn new(hooks: HookRuntime, stage: S, workspace: &str) -> Self {
        Self { hooks, stage, workspace: Arc::from(workspace), workspace_overriders: Mutex::default() }
    }

    /// Processes one event, and closes its lifespan if `save_state` has not. An error that no stage handles is logged,
    /// reported to the observers, and returned with everything that the turn produced before it. A panic is handled in the
    /// same way; panics of hooks and runners are caught earlier, so only a channel can cause one.
    pub async fn process(
        &self,
        inbound: InboundEvent,
        session: SessionId,
        context: &TurnContext<'_, S::Turn>,
    ) -> TurnReport<S::Report> {
        let notice = NoticeRequest::default();
        let mut report = TurnReport::started();
        let stages = self.run_stages(&inbound, &session, context, &notice, &mut report);
        let result = AssertUnwindSafe(stages).catch_unwind().await;
        report.result = result.unwrap_or_else(|_| Err(TurnError::crashed("the turn")));
        if let Err(error) = &report.result {
            if *error == TurnError::Cancelled {
                tracing::warn!(%session, "turn cancelled");
            } else {
                tracing::error!(%session, code = error.code().as_str(), %error, "turn failed");
            }
            let (stage, inbound) = (ErrorStage::Turn, Some(inbound.clone()));
            self.hooks.notify_error(stage, error.to_report(), inbound, &notice, context.hook_turn).await;
        }
        close_lifespan(&inbound, report.result.as_ref().err()).await;
        TurnReport { notice: notice.text().map(str::to_owned), effects: context.hook_turn.close(), ..report }
    }

    async fn run_stages(
        &self,
        inbound: &InboundEvent,
        session: &SessionId,
        context: &TurnContext<'_, S::Turn>,
        notice: &NoticeRequest,
        report: &mut TurnReport<S::Report>,
    ) -> Result<String, TurnError> {
        let hook_turn = context.hook_turn;
        let state = self.load_state(inbound, session, hook_turn).await?;
        let tools = self.stage.granted_tools(inbound, context.turn);
        let prompt = build_prompt(&self.hooks, inbound, session, &state, tools, hook_turn).await?;
        let (inbound_event, session, hook_turn) = (inbound.clone(), session.clone(), hook_turn.clone());
        let input = StageInput { inbound: inbound_event, session, prompt, state, hook_turn };
        let relay = StageEventRelay::new(&self.hooks, &input, notice, context.reply_target);
        let stage_report = self.stage.run(input.clone(), context.turn, &relay).await;
        report.run = stage_report.run;
        let output = self.stage_output(&input, stage_report.outcome, notice).await;
        let output = self.save_state(&input, output, relay).await?;
        for outbound in self.render_outbound(&input, &output).await? {
            if let Some(outbound) = context.reply_target.route_outbound(outbound) {
                report.dispatched.push(self.dispatch_outbound(inbound, outbound).await?);
            }
        }
        Ok(output.text.to_string())
    }

    /// Merges the workspace and the maps of all plugins, the lowest priority first, so that the highest wins a key.
    async fn load_state(
        &self,
        inbound: &InboundEvent,
        session: &SessionId,
        hook_turn: &HookTurn,
    ) -> Result<TurnState, TurnError> {
        let state = TurnState::for_workspace(&self.workspace);
        let args = LoadStateArgs { message: inbound.clone(), session_id: session.clone(), turn: hook_turn.clone() };
        let loaded = self.hooks.call_all::<LoadState>(&args).await?;
        for answer in loaded.into_iter().rev() {
            let Some(values) = answer.value else { continue };
            self.warn_about_workspace(&answer.plugin, &values);
            state.merge(values);
        }
        Ok(state)
    }

    /// Logs once that a plugin sets a workspace of its own, which has no effect: tools, files, skills and the tape of the
    /// turn belong to the workspace of the host.
    fn warn_about_workspace(&self, plugin: &PluginName, values: &JsonObject) {
        let is_other = |path: &serde_json::Value| path.as_str() != Some(self.workspace.as_ref());
        if !values.get(TurnState::WORKSPACE_KEY).is_some_and(is_other) {
            return;
        }
        let mut overriders = self.workspace_overriders.lock().unwrap_or_else(PoisonError::into_inner);
        if overriders.insert(plugin.clone()) {
            let key = TurnState::WORKSPACE_KEY;
            tracing::warn!(%plugin, "load_state sets {key:?}, which is ignored: a host has one workspace");
        }
    }

    async fn stage_output(
        &self,
        input: &StageInput,
        outcome: Result<StageOutcome, TurnError>,
        notice: &NoticeRequest,
    ) -> Result<StageOutput, TurnError> {
        let output = |content: Content, silent| StageOutput {
            text: ModelText(Arc::from(content.text())),
            content: ModelContent(Arc::new(content)),
            silent,
        };
        Ok(match outcome? {
            StageOutcome::Output(content) => output(content, false),
            StageOutcome::Silent => output(Content::default(), true),
            StageOutcome::NoOutput => output(self.fall_back_to_prompt(input, notice).await.into(), false),
        })
    }

    /// Runs `save_state`, after success and failure of the model stage alike.
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
            turn: input.hook_turn.clone(),
        };
        let saved = self.hooks.call_all_despite_failures::<SaveState>(&args).await;
        if let (Err(_), Err(failure)) = (&stage, &saved) {
            tracing::warn!(plugin = %failure.plugin, reason = %failure.reason, "save_state failed after the turn had failed");
        }
        let output = stage?;
        saved?;
        Ok(output)
    }

    /// Reports the missing output to the observers and falls back to the prompt or, for parts, the inbound text.
    async fn fall_back_to_prompt(&self, input: &StageInput, notice: &NoticeRequest) -> String {
        let message: Arc<str> = Arc::from("no plugin produced a model output");
        let error = ErrorReport { detail: Arc::clone(&message), public: message };
        let (stage, inbound) = (ErrorStage::RunModel, Some(input.inbound.clone()));
        self.hooks.notify_error(stage, error, inbound, notice, &input.hook_turn).await;
        let (text, origin) = match input.prompt.0.as_ref() {
            Content::Text(prompt) => (prompt.clone(), "the prompt"),
            Content::Parts(_) => (input.inbound.input.plain_text().to_owned(), "the inbound text"),
        };
        self.hooks.trace_fallback::<RunModel>(format!("{text:?}, {origin}"));
        text
    }

    /// Concatenates the messages of all plugins. If there are none, the model output becomes one message, unless it has
    /// neither text nor media.
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
            model_content: output.content.clone(),
            turn: input.hook_turn.clone(),
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
        let content = &*output.content.0;
        if outbounds.is_empty() && (content.has_media() || !output.text.trim().is_empty()) {
            self.hooks.trace_fallback::<RenderOutbound>(format!("{:?}, the model output", &*output.text));
            outbounds.push(OutboundMessage::reply_to(&input.inbound, input.session.clone(), content.clone()));
        }
        Ok(outbounds)
    }

    /// Passes a message to every plugin and collects whether it sent or staged it.
    pub async fn dispatch_outbound(
        &self,
        inbound: &InboundEvent,
        outbound: OutboundMessage,
    ) -> Result<DispatchReport, TurnError> {
        let message = DispatchMessage::new(outbound.clone());
        let args = DispatchOutboundArgs { message: message.clone(), inbound: inbound.clone() };
        let answers = self.hooks.call_all::<DispatchOutbound>(&args).await?;
        let answers = answers.into_iter().map(|answer| (answer.plugin, answer.value.unwrap_or(false))).collect();
        Ok(DispatchReport { outbound, answers, is_staged: message.is_staged() })
    }
}

/// Builds the prompt: the value of the first plugin that returns one, or the inbound text if there is none or it is
/// empty.
pub async fn build_prompt(
    hooks: &HookRuntime,
    inbound: &InboundEvent,
    session: &SessionId,
    state: &TurnState,
    tools: GrantedTools,
    hook_turn: &HookTurn,
) -> Result<PromptContent, HookError> {
    let args = BuildPromptArgs {
        message: inbound.clone(),
        session_id: session.clone(),
        state: state.clone(),
        tools,
        turn: hook_turn.clone(),
    };
    let prompt = hooks.call_first::<BuildPrompt>(&args).await?.map(|decision| decision.value);
    if let Some(prompt) = prompt.filter(|prompt| !prompt.is_empty()) {
        return Ok(prompt.into());
    }
    let text = inbound.input.plain_text();
    hooks.trace_fallback::<BuildPrompt>(format!("{text:?}, the inbound text"));
    Ok(Content::from(text).into())
}

/// Sink of the model stage: collects the text, reports errors to the observers, and passes on every event that may be shown
/// before the reply is rendered.
struct StageEventRelay<'a> {
    hooks: &'a HookRuntime,
    input: &'a StageInput,
    notice: &'a NoticeRequest,
    target: &'a dyn ReplyTarget,
    text: Mutex<String>,
    /// A final event has passed.
    is_finished: AtomicBool,
}

impl<'a> StageEventRelay<'a> {
    fn new(
        hooks: &'a HookRuntime,
        input: &'a StageInput,
        notice: &'a NoticeRequest,
        target: &'a dyn ReplyTarget,
    ) -> Self {
        Self { hooks, input, notice, target, text: Mutex::default(), is_finished: AtomicBool::new(false) }
    }

    /// The part of an event that a channel may show during the turn. Where a plugin renders the reply, the text of the model
    /// is not the reply: it may be redacted, translated or silenced, so the channel only gets the rendered messages.
    fn shown_event<'e>(&self, event: &'e StreamEvent) -> Option<Cow<'e, StreamEvent>> {
        if !self.hooks.is_implemented::<RenderOutbound>() {
            return Some(Cow::Borrowed(event));
        }
        match event {
            StreamEvent::Text { .. } | StreamEvent::Reasoning { .. } => None,
            StreamEvent::Final { ok, .. } => Some(Cow::Owned(StreamEvent::Final { text: String::new(), ok: *ok })),
            StreamEvent::ToolCall { .. }
            | StreamEvent::ToolResult { .. }
            | StreamEvent::Usage { .. }
            | StreamEvent::Waiting { .. }
            | StreamEvent::Error { .. } => Some(Cow::Borrowed(event)),
        }
    }

    /// Emits a final event for a stage that ended without one, such as a cancelled stage.
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
            StreamEvent::Error { message, code } => {
                let public = code.as_ref().and_then(FailureCode::public_message);
                let public = Arc::from(public.as_deref().unwrap_or(message));
                let error = ErrorReport { detail: Arc::from(message.as_str()), public };
                let (stage, inbound) = (ErrorStage::RunModel, Some(self.input.inbound.clone()));
                self.hooks.notify_error(stage, error, inbound, self.notice, &self.input.hook_turn).await;
            }
            StreamEvent::Reasoning { .. }
            | StreamEvent::ToolCall { .. }
            | StreamEvent::ToolResult { .. }
            | StreamEvent::Usage { .. }
            | StreamEvent::Waiting { .. } => {}
            StreamEvent::Final { .. } => self.is_finished.store(true, Ordering::Relaxed),
        }
        if let Some(event) = self.shown_event(event) {
            self.target.emit(&event).await;
        }
    }

    fn withhold(&self, text: &str) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
