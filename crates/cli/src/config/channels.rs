//! What can be set for each channel: `[channels.NAME]` in a file, `CAPSTAN_CHANNELS__NAME__KEY` in the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use capstan_hooks::contracts::{Debounce, Intake};
use capstan_protocol::{AdmissionMode, ChannelName};

use super::ConfigError;
use super::error::nearest_words;
use super::key::{Workspace, nearest};
use super::layer::Layers;
use super::tables::{Form, NOT_EMPTY, Table, TableKey, is_not_empty};

const ADMISSION: &str = "admission";
const DEBOUNCE: &str = "debounce_seconds";
const MAX_WAIT: &str = "max_wait_seconds";
const ACTIVE_WINDOW: &str = "active_window_seconds";

/// The table of all channels.
pub(super) static TABLE: Table = Table {
    name: "channels",
    of: ("channels", "stdio"),
    keys: &[
        TableKey::new(ADMISSION, Form::Number),
        TableKey::new(DEBOUNCE, Form::Number),
        TableKey::new(MAX_WAIT, Form::Number),
        TableKey::new(ACTIVE_WINDOW, Form::Number),
    ],
    required: None,
    is_name: is_not_empty,
    name_rule: NOT_EMPTY,
    spelled: str::to_owned,
    workspace: Workspace::May,
};

/// The longest time that makes sense here.
const LONGEST: Duration = Duration::from_hours(24);
/// How long the first message waits at most, in quiet times, where nobody says.
const QUIET_TIMES: u32 = 5;

/// How what each channel hears is taken in, where something is set for it.
pub(super) fn intakes(layers: &Layers) -> Result<BTreeMap<ChannelName, Intake>, ConfigError> {
    let channels: BTreeSet<String> = layers.settings(&TABLE).into_iter().map(|setting| setting.of).collect();
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
    for setting in layers.settings(&TABLE) {
        if known.iter().any(|name| name.as_str() == setting.of) || found.contains_key(&setting.of) {
            continue;
        }
        let origin = layers.find(&setting.to_string()).map(|(_, origin)| origin.to_string()).unwrap_or_default();
        let nearest = nearest(&setting.of, known.iter().map(ChannelName::as_str));
        let meant = nearest_words(nearest.map(|name| format!("{}.{name}", TABLE.name)).as_deref());
        let line = format!("{origin} sets {}.{}, a channel that nobody provides{meant}", TABLE.name, setting.of);
        found.insert(setting.of, line);
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
        TABLE.name_of(self.channel, key)
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
