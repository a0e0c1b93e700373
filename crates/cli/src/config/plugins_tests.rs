use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ConfigFixture;
use crate::config::{Config, ConfigError};

fn weather_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "default": 3},
            "token": {"type": "string", "writeOnly": true},
        },
        "required": ["city"],
    })
}

impl ConfigFixture {
    /// Configuration of a distribution with the plugins `weather-report`, which has settings, and `plain`, which has none.
    fn load_with_plugins(&self) -> Config {
        let mut config = self.load().unwrap();
        let schemas = [("weather-report", Some(weather_schema())), ("plain", None)];
        config.declare_plugins(schemas.map(|(name, schema)| (name.to_owned(), schema)).into_iter().collect());
        config
    }

    fn weather_settings(&self) -> Result<Value, String> {
        let settings = self
            .load_with_plugins()
            .plugin_config("weather-report", Some(&weather_schema()))
            .map(|config| config.settings);
        settings.map(Value::Object)
    }
}

#[test]
fn h11_settings_of_a_plugin_are_layered_and_typed_by_its_schema() {
    let fixture = ConfigFixture::new().home("[plugins.weather-report]\ncity = \"Paris\"\n");
    assert_eq!(fixture.weather_settings(), Ok(json!({"city": "Paris", "days": 3})));
    let fixture = fixture
        .variable("CAPSTAN_PLUGINS__WEATHER_REPORT__CITY", "75001")
        .variable("CAPSTAN_PLUGINS__WEATHER_REPORT__DAYS", "5");
    assert_eq!(fixture.weather_settings(), Ok(json!({"city": "75001", "days": 5})));
    assert_eq!(fixture.load().unwrap().unknown_variables(), [""; 0]);
}

#[test]
fn h11_invalid_settings_of_a_plugin_are_described_without_their_values() {
    let problem = |text: &str| {
        let fixture = ConfigFixture::new().home(&format!("[plugins.weather-report]\n{text}\n"));
        fixture.weather_settings().unwrap_err()
    };
    assert!(problem("days = 3").contains("city"), "{}", problem("days = 3"));
    let wrong_type = problem("city = 'Paris'\ntoken = 4711");
    assert!(wrong_type.contains("plugins.weather-report.token") && !wrong_type.contains("4711"), "{wrong_type}");
    let typo = problem("city = 'Paris'\ntokn = 'x'");
    assert!(typo.contains("unknown key") && typo.contains("did you mean \"token\""), "{typo}");
    let without_settings = ConfigFixture::new().home("[plugins.plain]\nx = 1\n").load_with_plugins();
    assert!(without_settings.plugin_config("plain", None).unwrap_err().contains("has no settings"));
}

#[test]
fn h11_secrets_of_a_plugin_are_masked_and_every_value_of_an_unknown_plugin() {
    let text =
        "[plugins.weather-report]\ncity = \"Paris\"\ntoken = \"s3cr3t-token\"\n[plugins.wether-report]\nx = \"y\"\n";
    let config = ConfigFixture::new().home(text).load_with_plugins();
    let listed: BTreeMap<String, String> =
        config.list_settings().into_iter().map(|setting| (setting.key, setting.value.unwrap_or_default())).collect();
    assert_eq!(listed["plugins.weather-report.city"], "Paris");
    assert_eq!(listed["plugins.weather-report.token"], "********");
    assert_eq!(listed["plugins.wether-report.x"], "********");
    assert!(config.secrets().contains(&"s3cr3t-token".to_owned()));
    let unknown = config.unknown_plugins().join("\n");
    assert!(
        unknown.contains("plugins.wether-report, an unknown plugin (did you mean \"weather-report\"?)"),
        "{unknown}"
    );
}

#[test]
fn h11_an_untrusted_workspace_sets_no_plugin() {
    let in_file = || ConfigFixture::new().workspace("capstan.toml", "[plugins.weather-report]\ncity = \"Paris\"\n");
    let in_variables = ConfigFixture::new().workspace(".env", "CAPSTAN_PLUGINS__WEATHER_REPORT__CITY=Paris\n");
    for fixture in [in_file(), in_variables] {
        assert!(matches!(fixture.load(), Err(ConfigError::Untrusted { .. })));
    }
    let trusted = in_file().variable("CAPSTAN_TRUST_WORKSPACE", "true");
    assert_eq!(trusted.weather_settings(), Ok(json!({"city": "Paris", "days": 3})));
}

#[test]
fn h12_permissions_of_a_plugin_are_a_list_of_known_names() {
    let config = |text: &str| {
        let fixture = ConfigFixture::new().home(&format!("[plugins.plain]\npermissions = {text}\n"));
        fixture.load_with_plugins().plugin_config("plain", None)
    };
    let allowed = |text: &str| config(text).unwrap().allowed.unwrap().to_string();
    assert_eq!(allowed(r#"["note", "send:ops"]"#), "note, send:ops");
    assert_eq!(allowed("[]"), "");
    assert!(
        config(r#"["fly"]"#).unwrap_err().contains("plugins.plain.permissions, which must be a list of tape, note")
    );
    assert!(ConfigFixture::new().load_with_plugins().plugin_config("plain", None).unwrap().allowed.is_none());
    let reserved = json!({"type": "object", "properties": {"permissions": {"type": "string"}}});
    let refused = ConfigFixture::new().load_with_plugins().plugin_config("plain", Some(&reserved));
    assert!(refused.unwrap_err().contains("reserved"));
}
