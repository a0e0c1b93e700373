//! Hooks of a plugin process.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::{
    BeforeToolCallArgs, BuildPromptArgs, ErrorReport, ErrorStage, LoadStateArgs, ModelText, NoticeRequest,
    PendingToolCall, SaveStateArgs, SystemPromptArgs, TurnFailure,
};
use capstan_hooks::points::{BuildPrompt, LoadState, SaveState, SystemPrompt};
use capstan_hooks::{HookAction, HookTurn, InboundEvent, PluginRegistration, Registry, ToolDecision, TurnState};
use capstan_plugins::{ProcessPlugin, read_manifest};
use capstan_protocol::{Content, Event, ResourceAccess};
use serde_json::{Value, json};

use crate::support::{ScriptedPlugin, collect, failure, runner, stop};

fn message() -> InboundEvent {
    InboundEvent::new(Event::message("cli", "chat", "hello"))
}

fn prompt_args(state: &TurnState) -> BuildPromptArgs {
    let tools = ResourceAccess::none().into();
    BuildPromptArgs { message: message(), session_id: "s".into(), state: state.clone(), tools, turn: HookTurn::none() }
}

#[tokio::test]
async fn h05_a_hook_gets_the_arguments_it_declares_and_patches_the_state() {
    let hook = "[[hooks]]\nname = \"build_prompt\"\narguments = [\"state\", \"session_id\"]\n";
    let plugin = ScriptedPlugin::new("echo", hook);
    let hooks = plugin.register();
    let listing = hooks.registry().hook_listings();
    let build_prompt = listing.iter().find(|listing| listing.point.name == "build_prompt").unwrap();
    assert_eq!(build_prompt.implementors[0].arguments, ["session_id", "state"]);
    let state = TurnState::new();
    state.set("mood", "low");
    state.set("gone", 1);
    let decision = hooks.call_first::<BuildPrompt>(&prompt_args(&state)).await.unwrap().unwrap();
    assert_eq!(decision.value, Content::from("['session_id', 'state'] low"));
    assert_eq!(Value::Object(state.values()), json!({"mood": "good"}));
    stop(&hooks).await;
}

#[tokio::test]
async fn h12_effects_of_a_hook_are_those_that_its_plugin_may_request() {
    let hook = |arguments: &str| format!("[[hooks]]\nname = \"load_state\"\narguments = [{arguments}]\n");
    for (arguments, expected) in [("\"handle\"", 1), ("", 0)] {
        let plugin = ScriptedPlugin::new("echo", &hook(arguments));
        let hooks = plugin.register();
        let turn = HookTurn::new("s".into(), None);
        let args = LoadStateArgs { message: message(), session_id: "s".into(), turn: turn.clone() };
        let answers = hooks.call_all::<LoadState>(&args).await.unwrap();
        assert_eq!(Value::Object(answers[0].value.clone().unwrap()), json!({"color": "red"}));
        let effects = turn.close();
        assert_eq!(effects.len(), expected, "{effects:?}");
        let is_note = |action: &HookAction| matches!(action, HookAction::Note { name, .. } if name == "x.seen");
        assert!(effects.iter().all(|effect| effect.plugin.as_str() == "scripted" && is_note(&effect.action)));
        stop(&hooks).await;
    }
}

#[tokio::test]
async fn h10_a_tool_call_is_denied_by_a_plugin_process() {
    let hook = "[[hooks]]\nname = \"before_tool_call\"\narguments = [\"call\"]\nfail_closed = true\n";
    let plugin = ScriptedPlugin::new("echo", hook);
    let hooks = plugin.register();
    let call = PendingToolCall { name: "bash".into(), arguments: Arc::default() };
    let args = || BeforeToolCallArgs { call: call.clone(), session_id: "s".into(), state: TurnState::new() };
    let decision = hooks.interceptors().before_tool_call(args()).await.unwrap();
    assert!(matches!(decision, ToolDecision::Return(output) if output.is_error && output.text() == "not bash"));
    stop(&hooks).await;
}

#[tokio::test]
async fn h10_a_hook_that_fails_closed_stops_the_call_when_its_plugin_is_down() {
    for (fail_closed, is_stopped) in [(true, true), (false, false)] {
        let hook =
            format!("[[hooks]]\nname = \"before_tool_call\"\narguments = [\"call\"]\nfail_closed = {fail_closed}\n");
        let plugin = ScriptedPlugin::new("exits_at_initialize", &hook);
        let hooks = plugin.register();
        let call = PendingToolCall { name: "bash".into(), arguments: Arc::default() };
        let args = BeforeToolCallArgs { call, session_id: "s".into(), state: TurnState::new() };
        let decision = hooks.interceptors().before_tool_call(args).await;
        assert_eq!(decision.is_err(), is_stopped, "{decision:?}");
    }
}

#[tokio::test]
async fn h07_a_hook_of_a_plugin_that_is_down_is_skipped() {
    let hook = "[[hooks]]\nname = \"build_prompt\"\narguments = [\"state\"]\n";
    let plugin = ScriptedPlugin::new("exits", hook);
    let plugin = plugin.with_options(|options| options.first_backoff = Duration::from_hours(1));
    let hooks = plugin.register();
    failure(&collect(&runner(&hooks), "run-1", "exit").await);
    let decision = hooks.call_first::<BuildPrompt>(&prompt_args(&TurnState::new())).await.unwrap();
    assert!(decision.is_none());
}

#[tokio::test]
async fn h04_an_error_of_a_hook_fails_it_with_the_message_of_the_plugin() {
    let hook = "[[hooks]]\nname = \"save_state\"\n";
    let plugin = ScriptedPlugin::new("echo", hook);
    let hooks = plugin.register();
    let args = SaveStateArgs {
        session_id: "s".into(),
        state: TurnState::new(),
        message: message(),
        model_output: ModelText("".into()),
        failure: TurnFailure(None),
        turn: HookTurn::none(),
    };
    let error = hooks.call_all::<SaveState>(&args).await.err().unwrap();
    assert!(error.to_string().contains("disk of the plugin"), "{error}");
    stop(&hooks).await;
}

#[tokio::test]
async fn h04_an_observer_asks_for_a_notice() {
    let hook = "[[hooks]]\nname = \"on_error\"\narguments = [\"stage\", \"error\", \"notice\"]\n";
    let plugin = ScriptedPlugin::new("echo", hook);
    let hooks = plugin.register();
    let (error, notice) = (ErrorReport { detail: "d".into(), public: "p".into() }, NoticeRequest::default());
    hooks.notify_error(ErrorStage::Turn, error, None, &notice, &HookTurn::none()).await;
    assert_eq!(notice.text(), Some("the plugin is sorry"));
    stop(&hooks).await;
}

#[tokio::test]
async fn h06_a_static_system_prompt_needs_no_process() {
    let hook = "[[hooks]]\nname = \"system_prompt\"\nmode = \"static\"\ntext = \"Be brief.\"\n";
    let plugin = ScriptedPlugin::new("echo", hook);
    let hooks = plugin.register();
    let prompt = Content::from("hello").into();
    let args = SystemPromptArgs { prompt, session_id: "s".into(), state: TurnState::new() };
    let answers = hooks.call_all_sync::<SystemPrompt>(&args).unwrap();
    assert_eq!(answers[0].value.as_deref(), Some("Be brief."));
    assert!(!plugin.data_dir().exists(), "nothing was started");
}

#[tokio::test]
async fn h06_a_dynamic_system_prompt_is_asked_and_a_late_one_is_skipped() {
    let hook = "[[hooks]]\nname = \"system_prompt\"\narguments = [\"session_id\"]\n";
    let cases = [("echo", Duration::from_mins(1), Some("Be kind.")), ("hangs_at_initialize", Duration::ZERO, None)];
    for (mode, timeout, expected) in cases {
        let plugin = ScriptedPlugin::new(mode, hook).with_options(|options| options.prompt_timeout = timeout);
        let hooks = plugin.register();
        let prompt = Content::from("hello").into();
        let args = SystemPromptArgs { prompt, session_id: "s".into(), state: TurnState::new() };
        // On a thread that may block, as the host calls it.
        let asking = hooks.clone();
        let asked = tokio::task::spawn_blocking(move || asking.call_all_sync::<SystemPrompt>(&args).ok().unwrap());
        assert_eq!(asked.await.unwrap()[0].value.as_deref(), expected, "{mode}");
        stop(&hooks).await;
    }
}

#[tokio::test]
async fn h07_the_hooks_of_a_required_plugin_fail_when_it_is_down() {
    let hook = "[[hooks]]\nname = \"build_prompt\"\n";
    let plugin = ScriptedPlugin::new("exits_at_initialize", hook);
    plugin.edit_manifest("protocol = 1", "protocol = 1\nrequired = true");
    let hooks = plugin.register();
    let error = hooks.call_first::<BuildPrompt>(&prompt_args(&TurnState::new())).await.err().unwrap();
    assert!(error.to_string().contains("it exited with status 7"), "{error}");
}

#[test]
fn h07_a_required_plugin_that_does_not_load_is_marked() {
    let plugin = ScriptedPlugin::new("echo", "");
    plugin.edit_manifest("protocol = 1", "protocol = 1\nrequired = true");
    let manifest = read_manifest(plugin.folder.path()).unwrap();
    let folder = plugin.folder.path().to_owned();
    let process = ProcessPlugin::new(manifest, folder, plugin.data_dir(), plugin.options.clone());
    let mut registry = Registry::new();
    registry.add(&PluginRegistration::register(&process, Err("bad settings".to_owned())));
    assert!(registry.load_failures()[0].is_required);
}
