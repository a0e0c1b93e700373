//! Calls of hooks in another process: the declared arguments as JSON, and what the answer acts on.

use capstan_protocol::{JsonObject, OutboundMessage, RunId, SessionId};
use capstan_tape::TapeReader;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    BoundRunner, CurrentConfig, DispatchMessage, ErrorReport, ErrorStage, GrantedTools, LlmOutcome, LlmRequest,
    MaybeInboundEvent, ModelContent, ModelText, NoticeRequest, PendingToolCall, PromptContent, SessionBusy, StepNumber,
    ToolOutcome, TurnFailure,
};
use crate::{ContextModel, HookHandle, InboundEvent, PluginGrant, TurnState};

/// Call of a hook in another process.
#[derive(Clone, Default)]
pub struct RemoteHookCall {
    /// Declared arguments, and no others.
    pub arguments: JsonObject,
    /// State of the turn, for the patch in the answer; present if the hook has it, declared or not.
    pub state: Option<TurnState>,
    /// Handle for the effects in the answer, if it is declared.
    pub handle: Option<HookHandle>,
    /// Request for a notice, if it is declared.
    pub notice: Option<NoticeRequest>,
    /// Message that is being dispatched.
    pub dispatch: Option<DispatchMessage>,
}

impl RemoteHookCall {
    /// Applies a patch to the state of the turn: `null` removes a key.
    pub fn patch_state(&self, patch: JsonObject) {
        if let Some(state) = &self.state {
            state.patch(patch);
        }
    }
}

/// Arguments of a hook point that another process may implement.
pub trait RemoteArguments {
    /// Names of the arguments.
    const NAMES: &'static [&'static str];

    /// Call with these declared arguments, for the plugin that holds the grant.
    fn remote_call(&self, declared: &[&'static str], grant: &PluginGrant) -> RemoteHookCall;
}

/// Argument as JSON.
pub(super) trait ArgumentJson {
    /// JSON form, made only for an argument that is declared.
    fn argument_json(&self) -> Value;

    /// Adds what the answer acts on.
    fn attach(&self, _call: &mut RemoteHookCall, _is_declared: bool) {}
}

/// Adds an argument to a call, if it is declared.
pub(super) fn add_argument(
    call: &mut RemoteHookCall,
    declared: &[&'static str],
    name: &'static str,
    argument: &impl ArgumentJson,
) {
    let is_declared = declared.contains(&name);
    if is_declared {
        call.arguments.insert(name.to_owned(), argument.argument_json());
    }
    argument.attach(call, is_declared);
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

macro_rules! plain_arguments {
    ($($kind:ty => |$argument:ident| $json:expr;)*) => {$(
        impl ArgumentJson for $kind {
            fn argument_json(&self) -> Value {
                let $argument = self;
                $json
            }
        }
    )*};
}

plain_arguments! {
    InboundEvent => |message| event_json(message);
    SessionId => |id| id.as_str().into();
    PromptContent => |prompt| to_json(&prompt.0);
    ModelText => |text| Value::from(&*text.0);
    ModelContent => |content| to_json(&content.0);
    TurnFailure => |failure| failure.0.as_deref().map_or(Value::Null, Value::from);
    SessionBusy => |busy| busy.0.into();
    StepNumber => |step| step.0.into();
    CurrentConfig => |config| to_json(&config.0);
    ErrorStage => |stage| stage.as_str().into();
    ErrorReport => |error| json!({"detail": &*error.detail, "public": &*error.public});
    MaybeInboundEvent => |message| message.0.as_ref().map_or(Value::Null, event_json);
    LlmRequest => |request| to_json(&request.0);
    LlmOutcome => |outcome| match outcome.0.as_ref() {
        Ok(output) => json!({"output": output}),
        Err(error) => json!({"error": error}),
    };
    PendingToolCall => |call| json!({"name": call.name, "arguments": *call.arguments});
    ToolOutcome => |outcome| to_json(&outcome.0);
    RunId => |id| id.as_str().into();
    GrantedTools => |tools| to_json(&*tools.0);
    // Objects of this process, which no manifest can declare.
    BoundRunner => |_runner| Value::Null;
    TapeReader => |_tape| Value::Null;
}

impl ArgumentJson for TurnState {
    fn argument_json(&self) -> Value {
        Value::Object(self.values())
    }

    fn attach(&self, call: &mut RemoteHookCall, _: bool) {
        call.state = Some(self.clone());
    }
}

impl ArgumentJson for NoticeRequest {
    fn argument_json(&self) -> Value {
        Value::Bool(true)
    }

    fn attach(&self, call: &mut RemoteHookCall, is_declared: bool) {
        call.notice = is_declared.then(|| self.clone());
    }
}

impl ArgumentJson for DispatchMessage {
    fn argument_json(&self) -> Value {
        let message: &OutboundMessage = self;
        to_json(message)
    }

    fn attach(&self, call: &mut RemoteHookCall, _: bool) {
        call.dispatch = Some(self.clone());
    }
}

impl ArgumentJson for HookHandle {
    fn argument_json(&self) -> Value {
        Value::Bool(true)
    }

    fn attach(&self, call: &mut RemoteHookCall, is_declared: bool) {
        call.handle = is_declared.then(|| self.clone());
    }
}

impl ArgumentJson for ContextModel {
    fn argument_json(&self) -> Value {
        Value::Null
    }
}

fn event_json(message: &InboundEvent) -> Value {
    let event: &capstan_protocol::Event = message;
    let mut json = json!({"event": event, "origin": message.origin()});
    if let Some(at) = message.accepted_at() {
        json["accepted_at"] = to_json(&at);
    }
    if !message.combined_events().is_empty() {
        json["combined"] = message.combined_events().iter().map(event_json).collect();
    }
    json
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Event, ResourceAccess};
    use serde_json::json;

    use super::RemoteArguments;
    use crate::args::{BuildPromptArgs, GrantedTools};
    use crate::{HookTurn, InboundEvent, PluginGrant, TurnState};

    #[test]
    fn h05_only_declared_arguments_are_serialised() {
        let state = TurnState::for_workspace("/w");
        state.set("mood", "low");
        state.set("gone", 1);
        let message = InboundEvent::new(Event::message("cli", "chat", "hello"));
        let (session_id, turn, tools) = ("s".into(), HookTurn::none(), GrantedTools::from(ResourceAccess::none()));
        let args = BuildPromptArgs { message, session_id, state: state.clone(), tools, turn };
        assert_eq!(BuildPromptArgs::NAMES, ["message", "session_id", "state", "tools", "handle"]);
        let grant = PluginGrant { plugin: "p".into(), permissions: Default::default() };
        let call = args.remote_call(&["session_id"], &grant);
        assert_eq!(serde_json::Value::Object(call.arguments.clone()), json!({"session_id": "s"}));
        assert!(call.handle.is_none());
        call.patch_state(json!({"mood": "good", "gone": null, "_runtime_workspace": "/"}).as_object().unwrap().clone());
        assert_eq!(serde_json::Value::Object(state.values()), json!({"_runtime_workspace": "/w", "mood": "good"}));
        let call = args.remote_call(&["message", "state", "handle"], &grant);
        assert_eq!(call.arguments["message"]["event"]["input"]["text"], "hello");
        assert_eq!(call.arguments["message"]["origin"], "remote");
        assert_eq!(call.arguments["handle"], true);
        assert!(call.handle.is_some() && call.arguments.len() == 3);
    }
}
