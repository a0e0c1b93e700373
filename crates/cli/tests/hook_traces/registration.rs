//! H5, H8 and H9: what a plugin declares, how it is listed, and what happens when it does not load.

use capstan::hooks::args::{ModelText, PromptContent};
use capstan::hooks::points::{BuildPrompt, RunModel, SaveState};
use capstan::hooks::{InboundEvent, TurnState};
use capstan::protocol::{Content, SessionId};
use serde_json::Value;

use crate::scenario::{FnPlugin, TurnScenario};
use crate::test_plugins::register_echo;

#[tokio::test]
async fn h05_an_implementation_receives_only_the_arguments_it_declares() {
    let story = TurnScenario::new()
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
    insta::assert_snapshot!(story.to_text_with_arguments());
}

#[tokio::test]
async fn h09_a_plugin_that_does_not_load_is_reported_and_the_others_work() {
    let story = TurnScenario::new()
        .plugin("echo", register_echo)
        .with_plugin(FnPlugin::fallible("unconfigured", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("half registered".to_owned())) });
            Err("it needs a token".into())
        }))
        .with_plugin(FnPlugin::fallible("reckless", |_| panic!("no config file")))
        .plugin("echo", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("the second of its name".to_owned())) });
        })
        .plugin("builtin", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("an impostor".to_owned())) });
        })
        .serve_hello()
        .await;
    let failures = story.host.hooks().registry().load_failures().iter();
    let failures: Vec<String> = failures.map(|f| format!("not loaded: {}: {}", f.plugin, f.reason)).collect();
    insta::assert_snapshot!(format!("{}\n\n{}", failures.join("\n"), story.to_text()));
}

#[test]
fn h05_h08_the_command_line_lists_hooks_with_the_arguments_their_plugins_declare() {
    let home = tempfile::TempDir::new().unwrap();
    let output = assert_cmd::Command::cargo_bin("capstan")
        .unwrap()
        .args(["hooks", "--json", "--workspace"])
        .arg(home.path())
        .env("CAPSTAN_HOME", home.path())
        .assert()
        .success();
    let listing: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let of = |name: &str| listing["hooks"].as_array().unwrap().iter().find(|hook| hook["hook"] == name).cloned();
    let stages =
        ["resolve_session", "load_state", "build_prompt", "save_state", "render_outbound", "dispatch_outbound"];
    let lines: Vec<String> = stages.iter().map(|name| of(name).unwrap().to_string()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
