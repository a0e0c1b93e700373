use std::path::Path;
use std::sync::{Arc, Mutex};

use capstan_hooks::args::CurrentConfig;
use capstan_hooks::points::OnboardConfig;
use capstan_hooks::{BoxError, HookRegistrar, Plugin};
use capstan_protocol::JsonObject;
use serde_json::{Value, json};

use super::{OnboardArgs, run_onboard};
use crate::commands::{CommandContext, WorkspaceFlag};
use crate::config::{Config, ConfigSources};
use crate::{Capstan, CommandError};

/// A plugin whose `onboard_config` hook returns these settings.
struct OnboardConfigPlugin(Value);

/// A plugin that records the settings that its `onboard_config` hook sees.
struct ConfigWitness(Arc<Mutex<JsonObject>>);

impl Plugin for ConfigWitness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let seen = Arc::clone(&self.0);
        hooks.on_sync(OnboardConfig, move |current: CurrentConfig| {
            seen.lock().unwrap().clone_from(&current.0);
            Ok(None)
        });
        Ok(())
    }
}

impl Plugin for OnboardConfigPlugin {
    fn name(&self) -> &'static str {
        "wants"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let settings = self.0.clone();
        hooks.on_sync(OnboardConfig, move |current: CurrentConfig| {
            assert!(!current.0.contains_key("api_key"), "plugins do not see the key");
            assert_eq!(current.0["model"], "openai:x");
            Ok(Some(settings.clone()))
        });
        Ok(())
    }
}

async fn onboard_with_plugin(home: &Path, plugin: impl Plugin) -> Result<String, CommandError> {
    let capstan = Arc::new(Capstan::builder().plugin(plugin).build());
    let sources = ConfigSources { home: home.join("home"), workspace: home.to_owned(), environment: Vec::new() };
    let context = CommandContext { capstan: &capstan, config: Config::load(sources)?, workspace: home.to_owned() };
    let arguments = OnboardArgs {
        provider: None,
        model: Some("openai:x".to_owned()),
        api_base: None,
        api_key_stdin: false,
        skip_test: true,
        yes: true,
        workspace: WorkspaceFlag { path: None },
    };
    run_onboard(context, arguments).await?;
    Ok(std::fs::read_to_string(home.join("home/config.toml")).unwrap())
}

#[tokio::test]
async fn h02_settings_of_plugins_are_written() {
    let home = tempfile::tempdir().unwrap();
    let settings = json!({"max_steps": 9, "channels": {"cli": {"admission": "collect"}}});
    let config = onboard_with_plugin(home.path(), OnboardConfigPlugin(settings)).await.unwrap();
    assert_eq!(config, "model = \"openai:x\"\nmax_steps = 9\n\n[channels.cli]\nadmission = \"collect\"\n");
}

#[tokio::test]
async fn h02_invalid_setting_of_a_plugin_fails_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let failure = onboard_with_plugin(home.path(), OnboardConfigPlugin(json!({"nonsense": 1}))).await.unwrap_err();
    assert_eq!(failure.code, "config-invalid");
    assert!(failure.message.contains(&home.path().join("home/config.toml").display().to_string()), "{failure}");
    let failure = onboard_with_plugin(home.path(), OnboardConfigPlugin(json!("no mapping"))).await.unwrap_err();
    assert_eq!(failure.code, "hook-failed");
    assert!(!home.path().join("home").exists(), "nothing was written");
}

#[tokio::test]
async fn h11_onboard_config_sees_the_present_values_of_the_home_without_secrets() {
    let (folder, seen) = (tempfile::tempdir().unwrap(), Arc::default());
    let config =
        "max_steps = 7\n\n[models.openai]\napi_key = \"sk-in-the-file\"\nheaders = { X-Team = \"sk-header\" }\n";
    std::fs::create_dir(folder.path().join("home")).unwrap();
    std::fs::write(folder.path().join("home/config.toml"), config).unwrap();
    let written = onboard_with_plugin(folder.path(), ConfigWitness(Arc::clone(&seen))).await.unwrap();
    assert!(written.contains("max_steps = 7"), "{written}");
    let seen = seen.lock().unwrap();
    assert_eq!((&seen["max_steps"], &seen["model"]), (&json!(7), &json!("openai:x")));
    assert!(!json!(*seen).to_string().contains("sk-"), "{seen:?}");
}
