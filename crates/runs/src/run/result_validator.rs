//! Validates runner results before they are applied: well formed, not a duplicate, within the limits for size and rate.
//! A faulty or hostile runner harms only its own run, so everything stored of its results is bounded here.

use capstan_protocol::{
    ErrorCode, FailureCode, ResultBody, ResultParseError, RunId, RunResult, ToolOutput, truncate_bytes,
};
use capstan_tape::{DroppedResult, ResultAnomalies};
use capstan_turn::RunError;
use serde_json::Value;

use crate::nesting::{self, NestingLimit as _};
use crate::options::ResultLimits;
use crate::payload_size::json_size;

/// Number of dropped results that get an entry of their own. Further ones are only counted.
const MAX_RECORDED_DROPS: u32 = 16;
/// Uncommitted results of a run that trigger a commit: bytes and number.
const MAX_UNCOMMITTED_RESULTS: (u64, u64) = (1 << 20, 256);
/// Maximum length of an error code, in bytes.
const MAX_ERROR_CODE_LEN: usize = 64;
/// Maximum length of a run id or type of a foreign result in the record, in bytes.
const MAX_RECORDED_CLAIM_LEN: usize = 128;
/// Allowance for the name and the media type of an artifact, in addition to its content.
const ARTIFACT_ENVELOPE_BYTES: u64 = 4096;

/// Validation state of the results of one run.
#[derive(Debug, Default)]
pub(crate) struct ResultValidator {
    pub(crate) anomalies: ResultAnomalies,
    /// The highest sequence number so far.
    last_sequence: Option<u64>,
    /// Number of results.
    result_count: u64,
    /// Number of results that are written to the tape.
    entry_count: u64,
    /// Size of all results, in bytes.
    total_bytes: u64,
    /// Bytes and number of results since the last commit.
    uncommitted: (u64, u64),
    /// Number of dropped results that were recorded individually.
    recorded_drops: u32,
    /// The streamed message has become too long; further deltas of it are dropped.
    is_overflowing: bool,
    /// A terminal result was accepted.
    has_ended: bool,
}

/// Decision about a result.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "destructured at once, and nearly always contains a result")]
pub(crate) enum ResultVerdict {
    /// Apply the result.
    Accept(RunResult),
    /// Drop the result, with an entry if there is one.
    Drop(Option<DroppedResult>),
    /// The run exceeds a limit and must end.
    EndRun(RunError),
}

impl ResultValidator {
    /// Validates a result of `run`. `partial` is the length of the message that is being streamed.
    pub(crate) fn validate(
        &mut self,
        result: RunResult,
        run: &RunId,
        limits: &ResultLimits,
        partial: usize,
    ) -> ResultVerdict {
        let size = result_size(&result.body);
        let is_unparsed = matches!(result.body, ResultBody::Unparsed(_));
        self.result_count += 1;
        self.total_bytes = self.total_bytes.saturating_add(size);
        if let Some(dropped) = foreign_result(&result, run) {
            // Not even a terminal result of another run ends this one.
            self.anomalies.malformed += 1;
            return self.flood_failure(limits).map_or(ResultVerdict::Drop(Some(dropped)), ResultVerdict::EndRun);
        }
        let is_duplicate = self.is_duplicate(result_sequence(&result));
        let parsed = match parse_result(result) {
            Ok(result) if is_terminal(&result.body) => {
                return ResultVerdict::Accept(self.accept_terminal(result, limits));
            }
            Err(fault) if fault.is_terminal() => return ResultVerdict::Accept(self.accept_malformed_terminal(&fault)),
            parsed => parsed,
        };
        self.entry_count += u64::from(parsed.as_ref().is_ok_and(|result| !is_delta(&result.body)));
        if let Some(failure) = self.flood_failure(limits) {
            return ResultVerdict::EndRun(failure);
        }
        if is_duplicate {
            return ResultVerdict::Drop(None);
        }
        let result = match parsed {
            Ok(result) => result,
            Err(fault) => return self.drop_faulty(&fault),
        };
        let size = if is_unparsed { result_size(&result.body) } else { size };
        self.check_size(result, size, limits, partial)
    }

    /// Returns true once a terminal result was accepted.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns true if the uncommitted entries should be committed now, to bound the memory they take.
    pub(crate) fn should_commit(&mut self) -> bool {
        let is_due = self.uncommitted.0 > MAX_UNCOMMITTED_RESULTS.0 || self.uncommitted.1 > MAX_UNCOMMITTED_RESULTS.1;
        if is_due {
            self.uncommitted = (0, 0);
        }
        is_due
    }

    /// Returns true if one more dropped result gets an entry of its own.
    pub(crate) fn should_record_drop(&mut self) -> bool {
        let should_record = self.recorded_drops < MAX_RECORDED_DROPS;
        self.recorded_drops += u32::from(should_record);
        should_record
    }

    /// Tracks the sequence number of a result. Results without a number are in order: the stream delivers them one by
    /// one.
    fn is_duplicate(&mut self, sequence: Option<u64>) -> bool {
        let Some(sequence) = sequence else { return false };
        if self.last_sequence.is_some_and(|last| sequence <= last) {
            self.anomalies.duplicates += 1;
            return true;
        }
        // Some runners begin with 0 and some with 1.
        if sequence > self.last_sequence.map_or(1, |last| last.saturating_add(1)) {
            self.anomalies.gaps += 1;
        }
        self.last_sequence = Some(sequence);
        false
    }

    fn flood_failure(&self, limits: &ResultLimits) -> Option<RunError> {
        let (what, max, limit_name) = if self.result_count > limits.count {
            ("results", limits.count, "max_run_results")
        } else if self.total_bytes > limits.total_bytes {
            ("bytes of results", limits.total_bytes, "max_run_result_bytes")
        } else if self.entry_count > limits.entries {
            ("results for the tape", limits.entries, "max_run_entries")
        } else {
            return None;
        };
        let message = format!("the runner yielded more than {max} {what} (limit {limit_name})");
        Some(RunError { message, code: Some(ErrorCode::RunFlooded.into()) })
    }

    fn drop_faulty(&mut self, fault: &ResultParseError) -> ResultVerdict {
        match fault {
            ResultParseError::Unknown { .. } => self.anomalies.unknown += 1,
            ResultParseError::Malformed { .. } => self.anomalies.malformed += 1,
        }
        self.is_overflowing &= fault.kind() != "message.completed";
        ResultVerdict::Drop(Some(DroppedResult { kind: fault.kind().to_owned(), reason: fault.to_string() }))
    }

    fn check_size(&mut self, mut result: RunResult, size: u64, limits: &ResultLimits, partial: usize) -> ResultVerdict {
        if is_too_deep(&result.body) {
            self.anomalies.malformed += 1;
            let ResultBody::ToolCallCompleted { output, .. } = &mut result.body else {
                self.is_overflowing &= !matches!(result.body, ResultBody::MessageCompleted { .. });
                return ResultVerdict::Drop(Some(DroppedResult {
                    kind: result.body.kind().to_owned(),
                    reason: nesting::nesting_error_message(),
                }));
            };
            // Keep the answer without its content: the call must not stay open.
            *output = nesting::replace_output_if_too_nested(std::mem::replace(output, ToolOutput::ok("")));
        }
        if let ResultBody::MessageDelta { .. } = result.body {
            let max_bytes = limits.delta_bytes.min(limits.message_bytes.saturating_sub(partial as u64));
            // A truncated text is better than a text with a gap.
            let was_overflowing = self.is_overflowing;
            self.is_overflowing |= size > max_bytes;
            if self.is_overflowing {
                return self.drop_oversized(&result.body, size, max_bytes, !was_overflowing);
            }
            return ResultVerdict::Accept(result);
        }
        self.is_overflowing &=
            !matches!(result.body, ResultBody::MessageCompleted { .. } | ResultBody::ToolCallStarted { .. });
        let max_bytes = max_result_bytes(&result.body, limits);
        if size > max_bytes {
            let ResultBody::ToolCallCompleted { output, .. } = &mut result.body else {
                return self.drop_oversized(&result.body, size, max_bytes, true);
            };
            // Keep the answer without its content: the call must not stay open.
            self.anomalies.too_large += 1;
            *output = ToolOutput::error(format!(
                "the answer was left out: it has {size} bytes, more than the {max_bytes} allowed"
            ));
        }
        if !is_delta(&result.body) {
            self.uncommitted = (self.uncommitted.0.saturating_add(size), self.uncommitted.1 + 1);
        }
        ResultVerdict::Accept(result)
    }

    fn drop_oversized(&mut self, body: &ResultBody, size: u64, max_bytes: u64, is_recorded: bool) -> ResultVerdict {
        self.anomalies.too_large += 1;
        let reason = || format!("it has {size} bytes, more than the {max_bytes} allowed");
        ResultVerdict::Drop(is_recorded.then(|| DroppedResult { kind: body.kind().to_owned(), reason: reason() }))
    }

    /// Accepts a terminal result, whatever its size and sequence number: only the runner can end its run in time.
    fn accept_terminal(&mut self, mut result: RunResult, limits: &ResultLimits) -> RunResult {
        self.has_ended = true;
        if let ResultBody::RunFailed { message, code } = &mut result.body {
            let max_bytes = usize::try_from(limits.error_bytes).unwrap_or(usize::MAX);
            if truncate_bytes(message, max_bytes, " [...]") {
                self.anomalies.too_large += 1;
            }
            let is_code_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
            if code
                .as_ref()
                .map(FailureCode::as_str)
                .is_some_and(|code| code.len() > MAX_ERROR_CODE_LEN || !code.chars().all(is_code_char))
            {
                self.anomalies.malformed += 1;
                *code = None;
            }
        }
        result
    }

    fn accept_malformed_terminal(&mut self, fault: &ResultParseError) -> RunResult {
        self.has_ended = true;
        self.anomalies.malformed += 1;
        let message = format!("the runner ended with a malformed {}: {fault}", fault.kind());
        ResultBody::RunFailed { message, code: Some(ErrorCode::RunFailed.into()) }.into()
    }
}

/// Returns true if the body is nested too deeply for a readable tape. Actions have a limit of their own.
fn is_too_deep(body: &ResultBody) -> bool {
    match body {
        ResultBody::MessageCompleted { content, provider_meta } => content.is_too_deep() || provider_meta.is_too_deep(),
        ResultBody::ToolCallStarted { call } => call.is_too_deep(),
        ResultBody::ToolCallCompleted { output, .. } => output.content.is_too_deep(),
        ResultBody::StateUpdated { state, .. } => state.is_too_deep(),
        ResultBody::MessageDelta { .. }
        | ResultBody::ReasoningDelta { .. }
        | ResultBody::ArtifactCreated { .. }
        | ResultBody::ActionRequested(_)
        | ResultBody::RunCompleted { .. }
        | ResultBody::RunFailed { .. }
        | ResultBody::Unparsed(_) => false,
    }
}

/// Returns true if the result only extends the streamed text: a delta has no entry of its own.
fn is_delta(body: &ResultBody) -> bool {
    matches!(body, ResultBody::MessageDelta { .. } | ResultBody::ReasoningDelta { .. })
}

fn is_terminal(body: &ResultBody) -> bool {
    matches!(body, ResultBody::RunCompleted { .. } | ResultBody::RunFailed { .. })
}

/// The result as a dropped one, if it names another run than its own.
fn foreign_result(result: &RunResult, run: &RunId) -> Option<DroppedResult> {
    let claimed = match (&result.run_id, &result.body) {
        (Some(claimed), _) => claimed.as_str(),
        (None, ResultBody::Unparsed(value)) => value.get("run_id")?.as_str()?,
        (None, _) => return None,
    };
    if claimed == run.as_str() {
        return None;
    }
    let (mut claimed, mut kind) = (claimed.to_owned(), result.body.kind().to_owned());
    truncate_bytes(&mut claimed, MAX_RECORDED_CLAIM_LEN, "…");
    truncate_bytes(&mut kind, MAX_RECORDED_CLAIM_LEN, "…");
    Some(DroppedResult { kind, reason: format!("it belongs to another run: {claimed}") })
}

/// Sequence number of a result, even of an unparsed one.
fn result_sequence(result: &RunResult) -> Option<u64> {
    let unread_sequence = || match &result.body {
        ResultBody::Unparsed(value) => value.get("sequence").and_then(Value::as_u64),
        _ => None,
    };
    result.sequence.or_else(unread_sequence)
}

fn parse_result(result: RunResult) -> Result<RunResult, ResultParseError> {
    let ResultBody::Unparsed(value) = result.body else { return Ok(result) };
    let parsed = RunResult::from_json(value)?;
    Ok(RunResult { run_id: parsed.run_id.or(result.run_id), usage: parsed.usage.or(result.usage), ..parsed })
}

fn max_result_bytes(body: &ResultBody, limits: &ResultLimits) -> u64 {
    match body {
        ResultBody::MessageDelta { .. } | ResultBody::ReasoningDelta { .. } => limits.delta_bytes,
        ResultBody::MessageCompleted { .. } => limits.message_bytes,
        ResultBody::ToolCallStarted { .. } | ResultBody::ToolCallCompleted { .. } => limits.tool_bytes,
        ResultBody::StateUpdated { .. } | ResultBody::ActionRequested(_) => limits.state_bytes,
        // Base64 encodes three bytes as four.
        ResultBody::ArtifactCreated { .. } => {
            limits.artifact_bytes.div_ceil(3).saturating_mul(4) + ARTIFACT_ENVELOPE_BYTES
        }
        ResultBody::RunCompleted { .. } | ResultBody::RunFailed { .. } | ResultBody::Unparsed(_) => u64::MAX,
    }
}

/// Size of a result as JSON, in bytes; for a delta the length of its text.
fn result_size(body: &ResultBody) -> u64 {
    match body {
        ResultBody::MessageDelta { delta } | ResultBody::ReasoningDelta { delta } => delta.len() as u64,
        ResultBody::Unparsed(value) => json_size(value),
        body => json_size(body),
    }
}

#[cfg(test)]
#[path = "result_validator_tests.rs"]
mod tests;
