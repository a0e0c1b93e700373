use std::path::Path;

use capstan_hooks::args::CurrentConfig;
use capstan_hooks::points::OnboardConfig;
use capstan_hooks::{BoxError, HookRegistrar, Plugin};
use serde_json::{Value, json};

use super::{OnboardArgs, run_onboard};
use crate::commands::{CommandContext, WorkspaceFlag};
use crate::config::{Config, ConfigSources};
use crate::{Capstan, CommandError};

/// A plugin whose `onboard_config` hook returns these settings.
struct OnboardConfigPlugin(Value);

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

async fn onboard_with_plugin(home: &Path, settings: Value) -> Result<String, CommandError> {
    let capstan = std::sync::Arc::new(Capstan::builder().plugin(OnboardConfigPlugin(settings)).build());
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
    let config = onboard_with_plugin(home.path(), settings).await.unwrap();
    assert_eq!(config, "model = \"openai:x\"\nmax_steps = 9\n\n[channels.cli]\nadmission = \"collect\"\n");
}

#[tokio::test]
async fn h02_invalid_setting_of_a_plugin_fails_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let failure = onboard_with_plugin(home.path(), json!({"nonsense": 1})).await.unwrap_err();
    assert_eq!(failure.code, "config-invalid");
    assert!(failure.message.contains(&home.path().join("home/config.toml").display().to_string()), "{failure}");
    let failure = onboard_with_plugin(home.path(), json!("no mapping")).await.unwrap_err();
    assert_eq!(failure.code, "hook-failed");
    assert!(!home.path().join("home").exists(), "nothing was written");
}
