//! What can be set for each channel: `[channels.NAME]` in a file, `CAPSTAN_CHANNELS__NAME__KEY` in the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use capstan_hooks::contracts::{Debounce, Intake};
use capstan_protocol::{AdmissionMode, ChannelName};

use super::ConfigError;
use super::error::nearest_words;
use super::key::nearest;
use super::layer::Layers;

/// The table of all channels.
pub(super) const TABLE: &str = "channels";
/// What separates the parts of a name in a variable.
const SEPARATOR: &str = "__";

const ADMISSION: &str = "admission";
const DEBOUNCE: &str = "debounce_seconds";
const MAX_WAIT: &str = "max_wait_seconds";
const ACTIVE_WINDOW: &str = "active_window_seconds";
/// Everything that can be set for a channel.
const KEYS: &[&str] = &[ADMISSION, DEBOUNCE, MAX_WAIT, ACTIVE_WINDOW];

/// The longest time that makes sense here.
const LONGEST: Duration = Duration::from_hours(24);
/// How long the first message waits at most, in quiet times, where nobody says.
const QUIET_TIMES: u32 = 5;

/// A setting of a channel; written `channels.NAME.KEY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelKey {
    pub(super) channel: String,
    key: &'static str,
}

impl fmt::Display for ChannelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TABLE}.{}.{}", self.channel, self.key)
    }
}

impl ChannelKey {
    fn new(channel: &str, key: &str) -> Option<Self> {
        let key = KEYS.iter().copied().find(|known| *known == key)?;
        (!channel.is_empty()).then(|| Self { channel: channel.to_owned(), key })
    }

    /// The setting of this name. The name of a channel may have dots, that of a setting has none.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (channel, key) = name.strip_prefix(TABLE)?.strip_prefix('.')?.rsplit_once('.')?;
        Self::new(channel, key)
    }

    /// The setting of a variable, without the prefix and in small letters.
    pub(super) fn of_variable(name: &str) -> Option<Self> {
        let (channel, key) = name.strip_prefix(TABLE)?.strip_prefix(SEPARATOR)?.rsplit_once(SEPARATOR)?;
        Self::new(channel, key)
    }
}

/// The settings of a file's table of channels, as text.
pub(super) fn of_table(path: &str, table: toml::Value) -> Result<Vec<(ChannelKey, String)>, ConfigError> {
    let broken = |detail: String| ConfigError::Broken { path: path.to_owned(), detail };
    let toml::Value::Table(channels) = table else {
        return Err(broken(format!("{TABLE} must be a table of channels, as in [{TABLE}.stdio]")));
    };
    let mut settings = Vec::new();
    for (channel, table) in channels {
        let toml::Value::Table(table) = table else {
            return Err(broken(format!("{TABLE}.{channel} must be a table")));
        };
        for (key, value) in table {
            let name = format!("{TABLE}.{channel}.{key}");
            let Some(known) = ChannelKey::new(&channel, &key) else {
                let nearest = nearest(&key, KEYS.iter().copied()).map(str::to_owned);
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key: name, nearest });
            };
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                _ => return Err(broken(format!("{name} must be a text or a number"))),
            };
            settings.push((known, text));
        }
    }
    Ok(settings)
}

/// How what each channel hears is taken in, where something is set for it.
pub(super) fn intakes(layers: &Layers) -> Result<BTreeMap<ChannelName, Intake>, ConfigError> {
    let channels: BTreeSet<String> = layers.channel_keys().into_iter().map(|key| key.channel).collect();
    let intake = |channel: String| {
        let settings = Settings { layers, channel: &channel };
        let intake = Intake { admission: settings.admission()?, debounce: settings.debounce()? };
        Ok((ChannelName::new(channel.as_str()), intake))
    };
    channels.into_iter().map(intake).collect()
}

/// What is set for channels nobody provides, a line for each: where, which, and what may have been meant.
pub(super) fn unprovided(layers: &Layers, known: &[ChannelName]) -> Vec<String> {
    let mut found = BTreeMap::new();
    for key in layers.channel_keys() {
        if known.iter().any(|name| name.as_str() == key.channel) || found.contains_key(&key.channel) {
            continue;
        }
        let origin = layers.find(&key.to_string()).map(|(_, origin)| origin.to_string()).unwrap_or_default();
        let nearest = nearest(&key.channel, known.iter().map(ChannelName::as_str));
        let meant = nearest_words(nearest.map(|name| format!("{TABLE}.{name}")).as_deref());
        let line = format!("{origin} sets {TABLE}.{}, a channel that nobody provides{meant}", key.channel);
        found.insert(key.channel, line);
    }
    found.into_values().collect()
}

/// What is set for one channel.
struct Settings<'a> {
    layers: &'a Layers,
    channel: &'a str,
}

impl Settings<'_> {
    fn name(&self, key: &'static str) -> String {
        ChannelKey { channel: self.channel.to_owned(), key }.to_string()
    }

    fn admission(&self) -> Result<Option<AdmissionMode>, ConfigError> {
        let name = self.name(ADMISSION);
        let Some(text) = self.layers.text(&name) else { return Ok(None) };
        let modes = || AdmissionMode::ALL.into_iter().map(AdmissionMode::as_str);
        let refused = || {
            let known: Vec<&str> = modes().collect();
            let reason = format!("it must be one of {}{}", known.join(", "), nearest_words(nearest(&text, modes())));
            self.layers.invalid(&name, &reason)
        };
        AdmissionMode::parse(&text).map(Some).ok_or_else(refused)
    }

    fn debounce(&self) -> Result<Option<Debounce>, ConfigError> {
        let (quiet, max_wait) = (self.seconds(DEBOUNCE)?, self.seconds(MAX_WAIT)?);
        let active_window = self.seconds(ACTIVE_WINDOW)?;
        let Some(quiet) = quiet else {
            let without = [(MAX_WAIT, max_wait), (ACTIVE_WINDOW, active_window)];
            let set = without.into_iter().find_map(|(key, value)| value.map(|_| key));
            let refused = |key| self.layers.invalid(&self.name(key), &format!("it means nothing without {DEBOUNCE}"));
            return set.map_or(Ok(None), |key| Err(refused(key)));
        };
        let max_wait = max_wait.unwrap_or(quiet * QUIET_TIMES);
        if max_wait < quiet {
            let reason = format!("it must be at least {DEBOUNCE}, which is {}", quiet.as_secs_f64());
            return Err(self.layers.invalid(&self.name(MAX_WAIT), &reason));
        }
        Ok(Some(Debounce { quiet, max_wait, active_window }))
    }

    /// A time in seconds, with fractions.
    fn seconds(&self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        let name = self.name(key);
        let Some(seconds) = self.layers.parsed::<f64>(&name)? else { return Ok(None) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() && time <= LONGEST => Ok(Some(time)),
            _ => Err(self.layers.invalid(&name, "it must be more than 0 and at most 86400 seconds")),
        }
    }
}
