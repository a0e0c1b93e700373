//! Plugins made from functions, and a runtime over them.

use capstan_hooks::args::{
    BoundRunner, LoadStateArgs, ModelText, ResolveSessionArgs, RunModelArgs, SaveStateArgs, TurnFailure,
};
use capstan_hooks::{
    BoxError, HookDeadlines, HookRegistrar, HookRuntime, HookTurn, InboundEvent, Plugin, Registry, TurnState,
};
use capstan_protocol::{Content, Event, SessionId};

/// Registration function of a plugin.
type RegisterFn = dyn Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync;

/// Plugin made from a function.
pub struct FnPlugin {
    name: &'static str,
    register: Box<RegisterFn>,
}

/// Creates a plugin from a registration function.
pub fn plugin(name: &'static str, register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> FnPlugin {
    fallible_plugin(name, move |hooks| {
        register(hooks);
        Ok(())
    })
}

/// Creates a plugin that may fail to load.
pub fn fallible_plugin(
    name: &'static str,
    register: impl Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync + 'static,
) -> FnPlugin {
    FnPlugin { name, register: Box::new(register) }
}

impl Plugin for FnPlugin {
    fn name(&self) -> &str {
        self.name
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        (self.register)(hooks)
    }
}

/// Creates a runtime over plugins, registered in this order.
pub fn runtime(plugins: impl IntoIterator<Item = FnPlugin>) -> HookRuntime {
    let mut registry = Registry::new();
    for plugin in plugins {
        registry.register(&plugin);
    }
    HookRuntime::new(registry, HookDeadlines::default())
}

pub fn inbound_event() -> InboundEvent {
    InboundEvent::new(Event::message("cli", "local", "hello"))
}

pub fn session_id() -> SessionId {
    SessionId::new("cli:local")
}

pub fn resolve_session_args() -> ResolveSessionArgs {
    ResolveSessionArgs { message: inbound_event() }
}

pub fn load_state_args() -> LoadStateArgs {
    LoadStateArgs { message: inbound_event(), session_id: session_id(), turn: HookTurn::none() }
}

pub fn run_model_args() -> RunModelArgs {
    RunModelArgs {
        prompt: Content::from("hello").into(),
        session_id: session_id(),
        state: TurnState::new(),
        runner: BoundRunner::none(),
    }
}

pub fn save_state_args() -> SaveStateArgs {
    SaveStateArgs {
        session_id: session_id(),
        state: TurnState::new(),
        message: inbound_event(),
        model_output: ModelText("hello".into()),
        failure: TurnFailure(None),
        turn: HookTurn::none(),
    }
}
