//! Settings of channels: `[channels.NAME]` in a file, `CAPSTAN_CHANNELS__NAME__KEY` in the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use capstan_hooks::contracts::{DebounceOptions, IntakeOptions};
use capstan_protocol::{AdmissionMode, ChannelName};

use super::ConfigError;
use super::error::format_suggestion;
use super::key::{WorkspaceRule, nearest_name};
use super::layer::ConfigLayers;
use super::tables::{ConfigTable, TableKey, ValueForm};

const ADMISSION_FIELD: &str = "admission";
const DEBOUNCE_FIELD: &str = "debounce_seconds";
const MAX_WAIT_FIELD: &str = "max_wait_seconds";
const ACTIVE_WINDOW_FIELD: &str = "active_window_seconds";

/// The table of all channels.
pub(super) static CHANNEL_TABLE: ConfigTable = ConfigTable {
    name: "channels",
    kind_and_example: ("channels", "stdio"),
    keys: &[
        TableKey::new(ADMISSION_FIELD, ValueForm::Number),
        TableKey::new(DEBOUNCE_FIELD, ValueForm::Number),
        TableKey::new(MAX_WAIT_FIELD, ValueForm::Number),
        TableKey::new(ACTIVE_WINDOW_FIELD, ValueForm::Number),
    ],
    required: None,
    is_valid_name: is_channel_name,
    name_rule: CHANNEL_NAME_RULE,
    canonical_name: str::to_owned,
    workspace: WorkspaceRule::Allowed,
};

/// Validates the name of a channel: one printable line, because it is shown at terminals.
fn is_channel_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_control)
}
/// Rule of [`is_channel_name`], for error messages.
const CHANNEL_NAME_RULE: &str = "must not be empty or contain control characters";

/// Maximum of every debounce setting.
const MAX_DEBOUNCE: Duration = Duration::from_hours(24);
/// Default of `max_wait_seconds`, as a multiple of `debounce_seconds`.
const DEFAULT_MAX_WAIT_FACTOR: u32 = 5;

/// Intake options of the channels that have settings.
pub(super) fn intakes(layers: &ConfigLayers) -> Result<BTreeMap<ChannelName, IntakeOptions>, ConfigError> {
    let channels: BTreeSet<String> =
        layers.table_settings(&CHANNEL_TABLE).into_iter().map(|setting| setting.item).collect();
    let intake = |channel: String| {
        let settings = ChannelConfigLookup { layers, channel: &channel };
        let intake = IntakeOptions { admission: settings.admission()?, debounce: settings.debounce()? };
        Ok((ChannelName::new(channel.as_str()), intake))
    };
    channels.into_iter().map(intake).collect()
}

/// Rejects settings of an untrusted workspace that keep messages from the agent: waits that the user has not set, or longer
/// ones, and the admission that drops messages.
pub(super) fn check_workspace_rules(layers: &ConfigLayers) -> Result<(), ConfigError> {
    for setting in layers.table_settings(&CHANNEL_TABLE) {
        let (name, channel) = (setting.to_string(), &setting.item);
        let Some(set) = layers.workspace_value(&name) else { continue };
        let (user_value, is_key) =
            (layers.user_value(&name), |key: &str| name == CHANNEL_TABLE.setting_name(channel, key));
        if is_key(ADMISSION_FIELD) {
            let drops = |value: &str| AdmissionMode::parse(value) == Some(AdmissionMode::Drop);
            if drops(set.value) && !user_value.is_some_and(drops) {
                return Err(ConfigError::Untrusted { key: name, origin: set.origin.to_string() });
            }
            continue;
        }
        let seconds = |value: &str| value.parse::<f64>().ok();
        let max_wait = || {
            let quiet = seconds(layers.user_value(&CHANNEL_TABLE.setting_name(channel, DEBOUNCE_FIELD))?)?;
            is_key(MAX_WAIT_FIELD).then_some(quiet * f64::from(DEFAULT_MAX_WAIT_FACTOR))
        };
        let limit = user_value.and_then(seconds).or_else(max_wait).unwrap_or_default();
        // A value that is not a number fails when it is parsed.
        if seconds(set.value).is_some_and(|value| value > limit) {
            return Err(set.raised_error(limit.to_string()));
        }
    }
    Ok(())
}

/// Describes settings of unknown channels, one line per channel, with a suggestion.
pub(super) fn describe_unprovided(layers: &ConfigLayers, known: &[ChannelName]) -> Vec<String> {
    let mut lines = BTreeMap::new();
    for setting in layers.table_settings(&CHANNEL_TABLE) {
        if known.iter().any(|name| name.as_str() == setting.item) || lines.contains_key(&setting.item) {
            continue;
        }
        let origin = layers.find(&setting.to_string()).map(|(_, origin)| origin.to_string()).unwrap_or_default();
        let nearest = nearest_name(&setting.item, known.iter().map(ChannelName::as_str));
        let suggestion = format_suggestion(nearest.map(|name| format!("{}.{name}", CHANNEL_TABLE.name)).as_deref());
        let line = format!("{origin} sets {}.{}, an unknown channel{suggestion}", CHANNEL_TABLE.name, setting.item);
        lines.insert(setting.item, line);
    }
    lines.into_values().collect()
}

/// Reader of the settings of one channel.
struct ChannelConfigLookup<'a> {
    layers: &'a ConfigLayers,
    channel: &'a str,
}

impl ChannelConfigLookup<'_> {
    fn setting_name(&self, key: &'static str) -> String {
        CHANNEL_TABLE.setting_name(self.channel, key)
    }

    fn admission(&self) -> Result<Option<AdmissionMode>, ConfigError> {
        let name = self.setting_name(ADMISSION_FIELD);
        let Some(text) = self.layers.text(&name) else { return Ok(None) };
        let modes = || AdmissionMode::MODES.into_iter().map(AdmissionMode::as_str);
        let invalid = || {
            let known: Vec<&str> = modes().collect();
            let reason =
                format!("must be one of {}{}", known.join(", "), format_suggestion(nearest_name(&text, modes())));
            self.layers.invalid_error(&name, &reason)
        };
        AdmissionMode::parse(&text).map(Some).ok_or_else(invalid)
    }

    fn debounce(&self) -> Result<Option<DebounceOptions>, ConfigError> {
        let (quiet, max_wait) = (self.seconds(DEBOUNCE_FIELD)?, self.seconds(MAX_WAIT_FIELD)?);
        let active_window = self.seconds(ACTIVE_WINDOW_FIELD)?;
        let Some(quiet) = quiet else {
            let dependent = [(MAX_WAIT_FIELD, max_wait), (ACTIVE_WINDOW_FIELD, active_window)];
            let key = dependent.into_iter().find_map(|(key, value)| value.map(|_| key));
            let invalid =
                |key| self.layers.invalid_error(&self.setting_name(key), &format!("requires {DEBOUNCE_FIELD}"));
            return key.map_or(Ok(None), |key| Err(invalid(key)));
        };
        let max_wait = max_wait.unwrap_or(quiet * DEFAULT_MAX_WAIT_FACTOR);
        if max_wait < quiet {
            let reason = format!("must be at least {DEBOUNCE_FIELD}, which is {}", quiet.as_secs_f64());
            return Err(self.layers.invalid_error(&self.setting_name(MAX_WAIT_FIELD), &reason));
        }
        Ok(Some(DebounceOptions { quiet_period: quiet, max_wait, active_window }))
    }

    /// A duration in seconds, with fractions.
    fn seconds(&self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        let name = self.setting_name(key);
        let Some(seconds) = self.layers.parsed::<f64>(&name)? else { return Ok(None) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() && time <= MAX_DEBOUNCE => Ok(Some(time)),
            _ => Err(self.layers.invalid_error(&name, "must be more than 0 and at most 86400 seconds")),
        }
    }
}
