//! Keys of a provider, with a cool-down for each key that the provider refused.
//!
//! # Scope and length of a cool-down
//!
//! | cause | applies to | length |
//! |---|---|---|
//! | rate limit | the key with this model | requested by the provider, otherwise it doubles from failure to failure |
//! | exhausted quota | the key | [`QUOTA_COOLDOWN`] |
//! | rejected key (401) | the key | [`REJECTED_COOLDOWN`] |
//! | forbidden model (403) | the key with this model | [`FORBIDDEN_COOLDOWN`] |
//!
//! The only key of a provider cools down after rate limits alone.
//!
//! The state belongs to the process and is shared by all its sessions. A restart, with which a changed configuration
//! takes effect, clears it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::KeyPosition;
use capstan_protocol::{Clock, RetryBackoff, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};

/// Cool-down of a key whose quota or credit is used up.
const QUOTA_COOLDOWN: Duration = Duration::from_mins(30);
/// Cool-down of a key that the provider does not accept.
const REJECTED_COOLDOWN: Duration = Duration::from_hours(1);
/// Cool-down of a key that may not use a model. Also the answer of some proxies, so it is shorter.
const FORBIDDEN_COOLDOWN: Duration = Duration::from_mins(10);
/// Longest cool-down after a rate limit: a provider that names a date years ahead does not disable a key.
const MAX_RATE_LIMIT_COOLDOWN: Duration = Duration::from_hours(24);
/// Cool-downs after a rate limit for which the provider named no delay.
const RATE_LIMIT_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(500), max_delay: Duration::from_mins(1) };
/// Maximum number of cool-downs in memory. Model names come from requests, so their number is not bounded otherwise.
const MAX_COOLDOWNS: usize = 1024;

/// Reason why a key was refused, as opposed to the request or the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyFault {
    /// Too many requests with this key.
    RateLimited,
    /// The quota or credit of the account is used up.
    QuotaExhausted,
    /// The key is invalid or was revoked.
    Rejected,
    /// The key may not use the model.
    Forbidden,
}

impl KeyFault {
    /// Short description, for an error.
    fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate limit",
            Self::QuotaExhausted => "quota exhausted",
            Self::Rejected => "rejected",
            Self::Forbidden => "forbidden",
        }
    }

    /// Returns true if the key can still be used with other models.
    fn is_of_model(self) -> bool {
        match self {
            Self::RateLimited | Self::Forbidden => true,
            Self::QuotaExhausted | Self::Rejected => false,
        }
    }
}

/// Keys of a provider, in the order in which they are used.
#[derive(Debug)]
pub(crate) struct KeyPool {
    keys: Vec<SecretString>,
    clock: Clock,
    cooldowns: Mutex<HashMap<CooldownScope, KeyCooldown>>,
}

/// Index of a key, and the model of the cool-down; `None` for all models.
type CooldownScope = (usize, Option<String>);

/// Cool-down of a key. Kept after its end, so that the next one is longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyCooldown {
    fault: KeyFault,
    until: Timestamp,
    /// Consecutive failures.
    failures: u32,
}

/// Key of a pool.
#[derive(Debug, Clone)]
pub(crate) struct PooledKey {
    index: usize,
    pub(crate) secret: SecretString,
    pub(crate) position: KeyPosition,
}

/// Key for the next attempt.
#[derive(Debug)]
pub(crate) enum KeySelection {
    /// The provider has no keys.
    Keyless,
    /// The first key that is not cooling down.
    Free(PooledKey),
    /// Every key is cooling down.
    Cooling(PoolCooldown),
}

/// Cool-down of all keys of a pool for a model.
#[derive(Debug)]
pub(crate) struct PoolCooldown {
    /// End of the first cool-down.
    pub(crate) until: Timestamp,
    /// Time left until then.
    pub(crate) wait: Duration,
    /// Key that is free first.
    pub(crate) key: PooledKey,
    /// Number of keys for each cause, for an error.
    pub(crate) causes: String,
}

impl KeyPool {
    /// Creates a pool. White space around keys, empty keys and duplicates are ignored.
    pub(crate) fn new(keys: &[SecretString], clock: Clock) -> Self {
        let mut distinct: Vec<&str> = Vec::new();
        for key in keys.iter().map(|key| key.expose_secret().trim()).filter(|key| !key.is_empty()) {
            if !distinct.contains(&key) {
                distinct.push(key);
            }
        }
        let keys = distinct.into_iter().map(|key| SecretString::from(key.to_owned())).collect();
        Self { keys, clock, cooldowns: Mutex::default() }
    }

    pub(crate) fn keys(&self) -> &[SecretString] {
        &self.keys
    }

    /// Returns true if a refused key can be replaced by another one.
    pub(crate) fn has_several(&self) -> bool {
        self.keys.len() > 1
    }

    /// Selects the key for a request to a model.
    pub(crate) fn select(&self, model: &str) -> KeySelection {
        self.select_after(model, &[])
    }

    /// Like [`select`](Self::select); keys with these numbers are selected only if no other one is free.
    pub(crate) fn select_after(&self, model: &str, refused: &[u32]) -> KeySelection {
        let now = self.clock.now();
        let cooldowns = self.lock();
        let mut cooling: Vec<(usize, KeyFault, Timestamp)> = Vec::new();
        let mut free: Option<PooledKey> = None;
        for index in 0..self.keys.len() {
            let scopes = [(index, None), (index, Some(model.to_owned()))];
            let active = scopes.iter().filter_map(|scope| cooldowns.get(scope)).filter(|cooldown| cooldown.until > now);
            if let Some(cooldown) = active.max_by_key(|cooldown| cooldown.until) {
                cooling.push((index, cooldown.fault, cooldown.until));
                continue;
            }
            let key = self.key(index);
            if !refused.contains(&key.position.number) {
                return KeySelection::Free(key);
            }
            free = free.or(Some(key));
        }
        if let Some(key) = free {
            return KeySelection::Free(key);
        }
        let Some((index, _, until)) = cooling.iter().copied().min_by_key(|(_, _, until)| *until) else {
            return KeySelection::Keyless;
        };
        let wait = Duration::from_micros(until.as_micros().saturating_sub(now.as_micros()).unsigned_abs());
        let causes = describe_causes(cooling.into_iter().map(|(_, fault, _)| fault));
        KeySelection::Cooling(PoolCooldown { until, wait, key: self.key(index), causes })
    }

    /// Records that a key was refused. `requested` is the delay that the provider asked for, `jitter` a number from 0 to
    /// 1.
    pub(crate) fn record_fault(
        &self,
        key: &PooledKey,
        model: &str,
        fault: KeyFault,
        requested: Option<Duration>,
        jitter: f64,
    ) {
        // Without another key nothing is gained by waiting, and a user who mends the account or the key expects the next
        // request to be made. A rate limit also ends by itself.
        if !self.has_several() && fault != KeyFault::RateLimited {
            return;
        }
        let now = self.clock.now();
        let scope = (key.index, fault.is_of_model().then(|| model.to_owned()));
        let mut cooldowns = self.lock();
        let previous = cooldowns.get(&scope).copied();
        // Requests that were sent at the same time fail together: that is one failure.
        let failures = match previous {
            Some(previous) if previous.until > now => previous.failures,
            previous => previous.map_or(0, |previous| previous.failures).saturating_add(1),
        };
        let length = match fault {
            KeyFault::RateLimited => requested.map_or_else(
                || RATE_LIMIT_BACKOFF.base_delay(failures).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0),
                |requested| requested.min(MAX_RATE_LIMIT_COOLDOWN),
            ),
            KeyFault::QuotaExhausted => QUOTA_COOLDOWN,
            KeyFault::Rejected => REJECTED_COOLDOWN,
            KeyFault::Forbidden => FORBIDDEN_COOLDOWN,
        };
        let micros = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        let until = Timestamp::from_micros(now.as_micros().saturating_add(micros));
        let until = previous.map_or(until, |previous| previous.until.max(until));
        if previous.is_none() && cooldowns.len() >= MAX_COOLDOWNS {
            drop_earliest(&mut cooldowns, now);
        }
        cooldowns.insert(scope, KeyCooldown { fault, until, failures });
    }

    /// Records that a key was accepted: the next cool-down starts from the shortest one. A cool-down that another request
    /// started meanwhile stays.
    pub(crate) fn record_success(&self, key: &PooledKey, model: &str) {
        let now = self.clock.now();
        let mut cooldowns = self.lock();
        if cooldowns.is_empty() {
            return;
        }
        for scope in [(key.index, None), (key.index, Some(model.to_owned()))] {
            if cooldowns.get(&scope).is_some_and(|cooldown| cooldown.until <= now) {
                cooldowns.remove(&scope);
            }
        }
    }

    fn key(&self, index: usize) -> PooledKey {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let position = KeyPosition { number: number(index + 1), count: number(self.keys.len()) };
        PooledKey { index, secret: self.keys[index].clone(), position }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CooldownScope, KeyCooldown>> {
        // A poisoned lock is harmless: cool-downs are replaced as a whole.
        self.cooldowns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for a cool-down: drops those that have ended, or the one that ends first.
fn drop_earliest(cooldowns: &mut HashMap<CooldownScope, KeyCooldown>, now: Timestamp) {
    cooldowns.retain(|_, cooldown| cooldown.until > now);
    if cooldowns.len() >= MAX_COOLDOWNS
        && let Some(earliest) =
            cooldowns.iter().min_by_key(|(_, cooldown)| cooldown.until).map(|(scope, _)| scope.clone())
    {
        cooldowns.remove(&earliest);
    }
}

/// Number of keys for each cause, such as `2 rate limit, 1 rejected`.
fn describe_causes(faults: impl Iterator<Item = KeyFault>) -> String {
    let mut counts = std::collections::BTreeMap::<KeyFault, usize>::new();
    faults.for_each(|fault| *counts.entry(fault).or_default() += 1);
    counts.iter().map(|(fault, count)| format!("{count} {}", fault.as_str())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "key_pool_tests.rs"]
mod tests;
