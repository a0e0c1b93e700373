//! Limits of runs.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use capstan_host::{ApiLimits, ResultLimits, RunLimits};

use super::ConfigError;
use super::layer::ConfigLayers;

/// Minimum of `spill_bytes`, so that a preview is worth reading.
const MIN_SPILL_BYTES: usize = 1024;
/// Range of size limits. A smaller limit would reject ordinary messages, a larger one would let a run exhaust the memory of
/// the host.
const PAYLOAD_BYTES_RANGE: RangeInclusive<u64> = 1 << 10..=1 << 30;
/// Range of the limit on all results of a run, which are not held in memory at once.
const TOTAL_RESULT_BYTES_RANGE: RangeInclusive<u64> = 1 << 10..=1 << 40;
/// Range of the limits on the number of results.
const RESULT_COUNT_RANGE: RangeInclusive<u64> = 1..=100_000_000;

/// Loads the limits of runs.
pub(super) fn load_limits(layers: &ConfigLayers) -> Result<RunLimits, ConfigError> {
    let spill_bytes = layers.required("spill_bytes")?;
    if spill_bytes < MIN_SPILL_BYTES {
        return Err(layers.invalid_error("spill_bytes", "must be at least 1024"));
    }
    Ok(RunLimits {
        tool_timeout: Duration::from_secs(required_in_range(layers, "tool_timeout_seconds", 1..=MAX_TIMEOUT_SECONDS)?),
        action_timeout: Duration::from_secs(required_in_range(layers, "action_timeout_seconds", 1..=86_400)?),
        spill_bytes,
        max_steps: layers.required_positive("max_steps")?,
        max_run_tokens: layers.optional_positive("max_run_tokens")?,
        max_artifact_bytes: required_in_range(layers, "max_run_artifact_bytes", TOTAL_RESULT_BYTES_RANGE)?,
        api: load_api_limits(layers)?,
        results: load_result_limits(layers)?,
    })
}

fn load_api_limits(layers: &ConfigLayers) -> Result<ApiLimits, ConfigError> {
    Ok(ApiLimits {
        calls_per_second: required_in_range(layers, "api_calls_per_second", 1..=1_000_000)?,
        in_flight: required_in_range(layers, "api_calls_in_flight", 1..=10_000)?,
        payload_bytes: required_in_range(layers, "api_payload_bytes", PAYLOAD_BYTES_RANGE)?,
        content_bytes: required_in_range(layers, "api_content_bytes", PAYLOAD_BYTES_RANGE)?,
    })
}

fn load_result_limits(layers: &ConfigLayers) -> Result<ResultLimits, ConfigError> {
    Ok(ResultLimits {
        delta_bytes: required_in_range(layers, "result_delta_bytes", PAYLOAD_BYTES_RANGE)?,
        message_bytes: required_in_range(layers, "result_message_bytes", PAYLOAD_BYTES_RANGE)?,
        tool_bytes: required_in_range(layers, "result_tool_bytes", PAYLOAD_BYTES_RANGE)?,
        state_bytes: required_in_range(layers, "result_state_bytes", PAYLOAD_BYTES_RANGE)?,
        artifact_bytes: required_in_range(layers, "result_artifact_bytes", PAYLOAD_BYTES_RANGE)?,
        count: required_in_range(layers, "max_run_results", RESULT_COUNT_RANGE)?,
        entries: required_in_range(layers, "max_run_entries", RESULT_COUNT_RANGE)?,
        total_bytes: required_in_range(layers, "max_run_result_bytes", TOTAL_RESULT_BYTES_RANGE)?,
        ..ResultLimits::default()
    })
}

/// Maximum timeout: a year. Much longer ones would overflow the clock.
pub(super) const MAX_TIMEOUT_SECONDS: u64 = 31_536_000;

/// A number within bounds, both inclusive.
pub(super) fn required_in_range<T>(
    layers: &ConfigLayers,
    key: &str,
    bounds: RangeInclusive<T>,
) -> Result<T, ConfigError>
where
    T: FromStr<Err: std::fmt::Display + 'static> + PartialOrd + std::fmt::Display,
{
    let number: T = layers.required(key)?;
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(layers.invalid_error(key, &format!("must be from {} to {}", bounds.start(), bounds.end())))
}
