//! H5 and H9: declared arguments, and plugins that fail to load.

use capstan_hooks::args::{ModelText, PromptContent};
use capstan_hooks::points::{BuildPrompt, RunModel, SaveState};
use capstan_hooks::{InboundEvent, TurnState};
use capstan_host::testing::ClosurePlugin;
use capstan_protocol::{Content, SessionId};

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::register_echo;

#[tokio::test]
async fn h05_an_implementation_receives_only_the_arguments_it_declares() {
    let trace = TurnScenario::new()
        .plugin("frugal", |hooks| {
            hooks
                .on(BuildPrompt, || async { Ok(None) })
                .on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text())) })
                .on(SaveState, |_: ModelText| async { Ok(Some(())) });
        })
        .plugin("curious", |hooks| {
            hooks.on(BuildPrompt, |message: InboundEvent, session: SessionId, state: TurnState| async move {
                let (keys, text) = (state.values().len(), message.input.plain_text());
                Ok(Some(Content::from(format!("{text} in {session} with {keys} keys"))))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_arguments());
}

#[tokio::test]
async fn h09_a_plugin_that_fails_to_load_is_reported_and_the_others_work() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .with_plugin(ClosurePlugin::fallible("unconfigured", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("half registered".to_owned())) });
            Err("it needs a token".into())
        }))
        .with_plugin(ClosurePlugin::fallible("reckless", |_| panic!("no config file")))
        .plugin("echo", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("the second of its name".to_owned())) });
        })
        .plugin("builtin", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("an impostor".to_owned())) });
        })
        .serve_hello()
        .await;
    let failures = trace.host.hooks().registry().load_failures().iter();
    let failures: Vec<String> = failures.map(|f| format!("not loaded: {}: {}", f.plugin, f.reason)).collect();
    insta::assert_snapshot!(format!("{}\n\n{}", failures.join("\n"), trace.to_text()));
}
