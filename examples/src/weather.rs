//! Plugin with settings of its own, an `onboard_config` hook, and a command with typed options: `shout forecast --days 2`.
//!
//! The settings are `[plugins.weather]` in `config.toml`, or `CAPSTAN_PLUGINS__WEATHER__CITY` in the environment. The host
//! validates them against the schema, and masks the token wherever it would be shown.

use capstan::hooks::args::CurrentConfig;
use capstan::hooks::contracts::{CliCommand, CliContext};
use capstan::hooks::points::{OnboardConfig, RegisterCliCommands, SystemPrompt};
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::Event;
use clap::{Args, Command};
use serde::Deserialize;
use serde_json::{Value, json};

/// Settings of the plugin.
#[derive(Deserialize)]
struct WeatherSettings {
    city: Option<String>,
    days: u32,
}

/// Options of the command `forecast`.
#[derive(Args)]
struct ForecastArgs {
    /// City [default: plugins.weather.city]
    city: Option<String>,
    /// Days ahead [default: plugins.weather.days]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    days: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Asks the agent for a forecast in a host of its own.
async fn forecast(arguments: ForecastArgs, context: CliContext) -> Result<(), BoxError> {
    let settings: WeatherSettings = context.parse_config()?;
    let city = arguments.city.or(settings.city).ok_or("no city: pass one, or set plugins.weather.city")?;
    let days = arguments.days.unwrap_or(settings.days);
    let host = context.start_host().await?;
    let event = Event::message("cli", "forecast", format!("weather in {city}, {days} days"));
    let served = host.serve(event).await;
    host.stop().await?;
    let reply = served?.text();
    if arguments.json {
        return context.print_json(&json!({"city": city, "days": days, "reply": reply}));
    }
    context.print_line(&reply)
}

/// Plugin that tells the agent for which city to report the weather.
pub struct WeatherPlugin;

impl Plugin for WeatherPlugin {
    fn name(&self) -> &'static str {
        "weather"
    }

    fn config_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "token": {"type": "string", "writeOnly": true},
            },
        }))
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let WeatherSettings { city, days } = hooks.parse_config()?;
        let prompt = city.map(|city| format!("Weather reports are for {city}, {days} days ahead."));
        hooks.on_sync(SystemPrompt, move || Ok(prompt.clone()));
        hooks.on_sync(RegisterCliCommands, || {
            let definition = Command::new("forecast").about("Ask for the weather forecast of a city");
            Ok(Some(vec![CliCommand::with_args(definition, forecast)]))
        });
        // Onboarding writes a city only if there is none yet.
        hooks.on_sync(OnboardConfig, |present: CurrentConfig| {
            let section = present.0.get("plugins").and_then(|plugins| plugins.get("weather"));
            let is_set = section.is_some_and(|section| section.get("city").is_some());
            let section = json!({"plugins": {"weather": {"city": "Paris", "token": "none-yet"}}});
            Ok((!is_set).then_some(section))
        });
        Ok(())
    }
}
