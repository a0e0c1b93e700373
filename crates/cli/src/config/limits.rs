//! How much a run may do.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use capstan_host::{ApiLimits, Limits, ResultLimits};

use super::ConfigError;
use super::layer::Layers;

/// The shortest answer that may be set to spill: a preview must be worth reading.
const SHORTEST_SPILL: usize = 1024;
/// How large something may be set to be: less than an ordinary message needs stops every run, more is more than a host
/// should hold for one of them.
const BYTES: RangeInclusive<u64> = 1 << 10..=1 << 30;
/// The same for all results of a run, which are not held at once.
const TOGETHER: RangeInclusive<u64> = 1 << 10..=1 << 40;
/// How many results of a run there may be set to be.
const COUNT: RangeInclusive<u64> = 1..=100_000_000;

/// What the layers say.
pub(super) fn load(layers: &Layers) -> Result<Limits, ConfigError> {
    let spill_bytes = layers.required("spill_bytes")?;
    if spill_bytes < SHORTEST_SPILL {
        return Err(layers.invalid("spill_bytes", "it must be at least 1024"));
    }
    Ok(Limits {
        tool_timeout: Duration::from_secs(within(layers, "tool_timeout_seconds", 1..=YEAR)?),
        action_timeout: Duration::from_secs(within(layers, "action_timeout_seconds", 1..=86_400)?),
        spill_bytes,
        max_steps: layers.positive("max_steps")?,
        max_run_tokens: layers.positive_if_set("max_run_tokens")?,
        api: api(layers)?,
        results: results(layers)?,
    })
}

fn api(layers: &Layers) -> Result<ApiLimits, ConfigError> {
    Ok(ApiLimits {
        calls_per_second: within(layers, "api_calls_per_second", 1..=1_000_000)?,
        in_flight: within(layers, "api_calls_in_flight", 1..=10_000)?,
        payload_bytes: within(layers, "api_payload_bytes", BYTES)?,
        content_bytes: within(layers, "api_content_bytes", BYTES)?,
    })
}

fn results(layers: &Layers) -> Result<ResultLimits, ConfigError> {
    Ok(ResultLimits {
        delta_bytes: within(layers, "result_delta_bytes", BYTES)?,
        message_bytes: within(layers, "result_message_bytes", BYTES)?,
        tool_bytes: within(layers, "result_tool_bytes", BYTES)?,
        state_bytes: within(layers, "result_state_bytes", BYTES)?,
        artifact_bytes: within(layers, "result_artifact_bytes", BYTES)?,
        count: within(layers, "max_run_results", COUNT)?,
        entries: within(layers, "max_run_entries", COUNT)?,
        total_bytes: within(layers, "max_run_result_bytes", TOGETHER)?,
        ..ResultLimits::default()
    })
}

/// The longest time that can be set, in seconds: a year. Of much longer ones a clock cannot tell when they are over.
pub(super) const YEAR: u64 = 31_536_000;

/// A number between these two, both included.
pub(super) fn within<T>(layers: &Layers, key: &str, bounds: RangeInclusive<T>) -> Result<T, ConfigError>
where
    T: FromStr<Err: std::fmt::Display> + PartialOrd + std::fmt::Display,
{
    let number: T = layers.required(key)?;
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(layers.invalid(key, &format!("it must be from {} to {}", bounds.start(), bounds.end())))
}
