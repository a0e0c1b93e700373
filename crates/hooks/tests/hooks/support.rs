//! Plugins from functions, and a runtime over them.

use capstan_hooks::args::{Failure, LoadStateArgs, ModelText, ResolveSessionArgs, RunModelArgs, SaveStateArgs};
use capstan_hooks::{BoxError, Deadlines, HookRuntime, Inbound, Plugin, Registrar, Registry, State};
use capstan_protocol::{Content, Event, SessionId};

/// What a plugin registers.
type Register = dyn Fn(&mut Registrar) -> Result<(), BoxError> + Send + Sync;

/// A plugin made from a function.
pub struct FnPlugin {
    name: &'static str,
    register: Box<Register>,
}

/// A plugin that registers what the function does.
pub fn plugin(name: &'static str, register: impl Fn(&mut Registrar) + Send + Sync + 'static) -> FnPlugin {
    fallible(name, move |hooks| {
        register(hooks);
        Ok(())
    })
}

/// A plugin that may fail to load.
pub fn fallible(
    name: &'static str,
    register: impl Fn(&mut Registrar) -> Result<(), BoxError> + Send + Sync + 'static,
) -> FnPlugin {
    FnPlugin { name, register: Box::new(register) }
}

impl Plugin for FnPlugin {
    fn name(&self) -> &str {
        self.name
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        (self.register)(hooks)
    }
}

/// A runtime over plugins, in the order they register.
pub fn runtime(plugins: impl IntoIterator<Item = FnPlugin>) -> HookRuntime {
    let mut registry = Registry::new();
    for plugin in plugins {
        registry.register(&plugin);
    }
    HookRuntime::new(registry, Deadlines::default())
}

pub fn inbound() -> Inbound {
    Inbound::new(Event::message("cli", "local", "hello"))
}

pub fn session() -> SessionId {
    SessionId::new("cli:local")
}

pub fn resolve_session() -> ResolveSessionArgs {
    ResolveSessionArgs { message: inbound() }
}

pub fn load_state() -> LoadStateArgs {
    LoadStateArgs { message: inbound(), session_id: session() }
}

pub fn run_model() -> RunModelArgs {
    RunModelArgs { prompt: Content::from("hello").into(), session_id: session(), state: State::new() }
}

pub fn save_state() -> SaveStateArgs {
    SaveStateArgs {
        session_id: session(),
        state: State::new(),
        message: inbound(),
        model_output: ModelText("hello".into()),
        failure: Failure(None),
    }
}
