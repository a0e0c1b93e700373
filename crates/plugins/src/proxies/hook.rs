//! Hooks of a plugin process.

use capstan_hooks::points::{
    AdmissionDecision, AdmitMessage, AfterLlmCall, AfterToolCall, BeforeLlmCall, BeforeToolCall, BuildPrompt,
    ContinuePrompt, DispatchOutbound, LlmCallVerdict, LoadState, OnError, RenderOutbound, RenderedOutbound,
    ResolveSession, SaveState, ToolCallVerdict,
};
use capstan_hooks::{
    AsyncMode, BoxError, HookPhase, HookPoint, HookRegistrar, HookResult, RemoteArguments, RemoteHookCall,
};
use capstan_protocol::plugin_protocol::{
    PluginHookAnswer, PluginHookCall, PluginHookEffect, PluginHookManifest, method,
};
use capstan_protocol::{
    AdmissionMode, Content, JsonObject, ModelOutput, ModelRequest, OutboundMessage, SessionId, ToolOutput,
};
use capstan_rpc::RpcCallError;
use futures::FutureExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::PluginProcess;
use crate::error::call_message;

/// Registers a hook that the process answers. An unknown name is an error.
pub(crate) fn register_hook(
    hooks: &mut HookRegistrar,
    process: &PluginProcess,
    hook: &PluginHookManifest,
) -> Result<(), BoxError> {
    let mut registration = HookRegistration { hooks, process, hook };
    match hook.name.as_str() {
        "resolve_session" => registration.add(ResolveSession, |value| parse::<String>(value).map(SessionId::from)),
        "admit_message" => registration.add(AdmitMessage, read_admission),
        "load_state" => registration.add(LoadState, parse::<JsonObject>),
        "build_prompt" => registration.add(BuildPrompt, parse::<Content>),
        "continue_prompt" => registration.add(ContinuePrompt, parse::<Content>),
        "save_state" => registration.add(SaveState, |_| Ok(())),
        "render_outbound" => registration.add(RenderOutbound, read_outbound),
        "dispatch_outbound" => registration.add(DispatchOutbound, parse::<bool>),
        "before_llm_call" => registration.add(BeforeLlmCall, read_llm_verdict),
        "after_llm_call" => registration.add(AfterLlmCall, |_| Ok(())),
        "before_tool_call" => registration.add(BeforeToolCall, read_tool_verdict),
        "after_tool_call" => registration.add(AfterToolCall, parse::<ToolOutput>),
        "on_error" => registration.add(OnError, |_| Ok(())),
        name => {
            return Err(format!("this version of the host does not call the hook {name} of a plugin process").into());
        }
    }
    Ok(())
}

/// A hook that is being registered.
struct HookRegistration<'a> {
    hooks: &'a mut HookRegistrar,
    process: &'a PluginProcess,
    hook: &'a PluginHookManifest,
}

impl HookRegistration<'_> {
    fn add<P>(&mut self, point: P, read: fn(Value) -> Result<P::Output, String>)
    where
        P: HookPoint<Mode = AsyncMode>,
        P::Args: RemoteArguments,
    {
        let deadlines = self.process.options().hook_deadlines;
        let deadline = if P::INFO.phase == HookPhase::Event { deadlines.acceptance } else { deadlines.turn };
        let caller = RemoteHookCaller {
            process: self.process.clone(),
            hook: P::INFO.name,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            must_answer: self.hook.fail_closed || self.process.manifest().required,
        };
        self.hooks.on_remote(point, &self.hook.arguments, move |call| {
            let caller = caller.clone();
            async move { caller.call(call, read).await }.boxed()
        });
    }
}

/// Calls one hook of a process.
#[derive(Clone)]
struct RemoteHookCaller {
    process: PluginProcess,
    hook: &'static str,
    deadline_ms: u64,
    /// A process that is down fails the hook instead of being skipped.
    must_answer: bool,
}

impl RemoteHookCaller {
    async fn call<T>(&self, mut call: RemoteHookCall, read: fn(Value) -> Result<T, String>) -> HookResult<T> {
        let (connection, peer) = match self.process.connect().await {
            Ok(connected) => connected,
            Err(error) => return self.skip(error.into()),
        };
        let registration = connection.register_call("hook", None);
        let params = PluginHookCall {
            call_id: registration.call_id.clone(),
            hook: self.hook.to_owned(),
            arguments: std::mem::take(&mut call.arguments),
            deadline_ms: self.deadline_ms,
        };
        // The runtime of the hooks has the deadline, and cancels the request by dropping it.
        let answer = match peer.request::<PluginHookAnswer>(method::HOOK_CALL, &params, None).await {
            Ok(answer) => answer,
            Err(RpcCallError::Closed(reason)) => return self.skip(reason.to_string().into()),
            Err(error) => return Err(call_message(&error).into()),
        };
        self.apply(&call, answer, read)
    }

    /// Skips a hook whose process is down. The failure itself is in the log.
    fn skip<T>(&self, error: BoxError) -> HookResult<T> {
        if self.must_answer {
            return Err(error);
        }
        let plugin = &self.process.manifest().id;
        tracing::warn!(plugin, hook = self.hook, reason = %error, "a hook is skipped");
        Ok(None)
    }

    fn apply<T>(
        &self,
        call: &RemoteHookCall,
        answer: PluginHookAnswer,
        read: fn(Value) -> Result<T, String>,
    ) -> HookResult<T> {
        let PluginHookAnswer { value, state, effects, notice, stage } = answer;
        let value = value.filter(|value| !value.is_null()).map(read).transpose();
        let value = value.map_err(|error| format!("the value of {} cannot be read: {error}", self.hook))?;
        call.patch_state(state);
        for effect in effects {
            self.request_effect(call, effect);
        }
        if let (Some(request), Some(notice)) = (&call.notice, notice) {
            request.request(notice);
        }
        if let (Some(message), true) = (&call.dispatch, stage) {
            message.stage();
        }
        Ok(value)
    }

    /// Requests an effect. A refusal is logged: the plugin cannot react to it any more.
    fn request_effect(&self, call: &RemoteHookCall, effect: PluginHookEffect) {
        let requested = match &call.handle {
            None => Err("the hook does not declare the argument handle".to_owned()),
            Some(handle) => match effect {
                PluginHookEffect::Note { name, data } => handle.note(&name, data),
                PluginHookEffect::Anchor { name, state } => handle.anchor(&name, state),
                PluginHookEffect::Send { channel, chat_id, content } => handle.send(channel, chat_id, content),
            }
            .map_err(|refusal| refusal.to_string()),
        };
        if let Err(reason) = requested {
            let plugin = &self.process.manifest().id;
            tracing::warn!(plugin, hook = self.hook, reason, "an effect of a hook is refused");
        }
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn read_admission(value: Value) -> Result<AdmissionDecision, String> {
    let name: String = parse(value)?;
    Ok(match name.as_str() {
        "process" => AdmissionDecision::Process,
        "concurrent" => AdmissionDecision::Concurrent,
        _ => AdmissionDecision::WithMode(parse::<AdmissionMode>(Value::String(name))?),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutboundAnswer {
    #[serde(default)]
    messages: Vec<OutboundMessage>,
    #[serde(default)]
    silent: bool,
}

fn read_outbound(value: Value) -> Result<RenderedOutbound, String> {
    let OutboundAnswer { messages, silent } = parse(value)?;
    Ok(if silent { RenderedOutbound::Silent } else { RenderedOutbound::Messages(messages) })
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LlmAnswer {
    Change(ModelRequest),
    Finish(ModelOutput),
}

fn read_llm_verdict(value: Value) -> Result<LlmCallVerdict, String> {
    Ok(match parse(value)? {
        LlmAnswer::Change(request) => LlmCallVerdict::Change(request),
        LlmAnswer::Finish(output) => LlmCallVerdict::Finish(output),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolAnswer {
    Proceed(JsonObject),
    Replace(ToolOutput),
    Deny(String),
}

fn read_tool_verdict(value: Value) -> Result<ToolCallVerdict, String> {
    Ok(match parse(value)? {
        ToolAnswer::Proceed(arguments) => ToolCallVerdict::Proceed(arguments),
        ToolAnswer::Replace(output) => ToolCallVerdict::Replace(output),
        ToolAnswer::Deny(reason) => ToolCallVerdict::Deny(reason),
    })
}
