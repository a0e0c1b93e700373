//! What is looked at before a result is heeded: whether it can be read, whether it was there before, whether it is too
//! large, and whether the runner floods its run. A runner that errs or lies costs its own run and nothing else, so all
//! that is kept of it is bounded here.

use capstan_protocol::{ErrorCode, FailureCode, ResultBody, ResultParseError, RunResult, ToolOutput};
use capstan_tape::{DroppedResult, ResultAnomalies};
use capstan_turn::RunError;
use serde_json::Value;

use crate::nesting::{self, NestingLimit as _};
use crate::options::ResultLimits;
use crate::payload_size::json_size;

/// How many results that are left out stand on the tape one by one. The rest is counted.
const MAX_RECORDED_DROPS: u32 = 16;
/// How much a run may have given since the last commit before what waits is committed: in bytes, and in results.
const MAX_UNCOMMITTED_RESULTS: (u64, u64) = (1 << 20, 256);
/// How long a code is at most.
const MAX_ERROR_CODE_LEN: usize = 64;
/// What the name and the media type of an artifact may take beside its content.
const ARTIFACT_ENVELOPE_BYTES: u64 = 4096;

/// The results of one run, as they come.
#[derive(Debug, Default)]
pub(crate) struct ResultValidator {
    pub(crate) anomalies: ResultAnomalies,
    /// The highest number that the runner gave.
    last_sequence: Option<u64>,
    /// How many results there were.
    result_count: u64,
    /// How many of them are for the tape.
    entry_count: u64,
    /// How large they were together.
    total_bytes: u64,
    /// What came since the last commit.
    uncommitted: (u64, u64),
    /// How many that were left out were told one by one.
    recorded_drops: u32,
    /// The message that is streamed has become too long, so nothing is added to it any more.
    is_overflowing: bool,
    /// The one that ends the run was there.
    has_ended: bool,
}

/// What becomes of a result.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and nearly always has a result in it")]
pub(crate) enum ResultVerdict {
    /// It is heeded.
    Accept(RunResult),
    /// It is left out.
    Drop(Option<DroppedResult>),
    /// There were too many: the run ends.
    EndRun(RunError),
}

impl ResultValidator {
    /// Looks at a result. `partial` is how long the message is that is being streamed.
    pub(crate) fn validate(&mut self, result: RunResult, limits: &ResultLimits, partial: usize) -> ResultVerdict {
        let size = result_size(&result.body);
        let is_unread = matches!(result.body, ResultBody::Unread(_));
        self.result_count += 1;
        self.total_bytes = self.total_bytes.saturating_add(size);
        let is_again = self.is_duplicate(result_sequence(&result));
        let read = match parse_result(result) {
            Ok(result) if is_terminal(&result.body) => {
                return ResultVerdict::Accept(self.accept_terminal(result, limits));
            }
            Err(fault) if fault.is_terminal() => return ResultVerdict::Accept(self.accept_malformed_terminal(&fault)),
            read => read,
        };
        self.entry_count += u64::from(read.as_ref().is_ok_and(|result| !is_delta(&result.body)));
        if let Some(failure) = self.flood_failure(limits) {
            return ResultVerdict::EndRun(failure);
        }
        if is_again {
            return ResultVerdict::Drop(None);
        }
        let result = match read {
            Ok(result) => result,
            Err(fault) => return self.drop_faulty(&fault),
        };
        let size = if is_unread { result_size(&result.body) } else { size };
        self.check_size(result, size, limits, partial)
    }

    /// Whether the result that ends the run was there.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether what waits is to be committed now, so that it is kept on disk and not here.
    pub(crate) fn should_commit(&mut self) -> bool {
        let is_due = self.uncommitted.0 > MAX_UNCOMMITTED_RESULTS.0 || self.uncommitted.1 > MAX_UNCOMMITTED_RESULTS.1;
        if is_due {
            self.uncommitted = (0, 0);
        }
        is_due
    }

    /// Whether one more result that is left out may be told by itself.
    pub(crate) fn should_record_drop(&mut self) -> bool {
        let tells = self.recorded_drops < MAX_RECORDED_DROPS;
        self.recorded_drops += u32::from(tells);
        tells
    }

    /// Counts a number that the runner gave. Those of its results that have none are in order: they come one by one.
    fn is_duplicate(&mut self, sequence: Option<u64>) -> bool {
        let Some(sequence) = sequence else { return false };
        if self.last_sequence.is_some_and(|last| sequence <= last) {
            self.anomalies.duplicates += 1;
            return true;
        }
        // Some begin with 0 and some with 1.
        if sequence > self.last_sequence.map_or(1, |last| last.saturating_add(1)) {
            self.anomalies.gaps += 1;
        }
        self.last_sequence = Some(sequence);
        false
    }

    fn flood_failure(&self, limits: &ResultLimits) -> Option<RunError> {
        let (what, most, limit) = if self.result_count > limits.count {
            ("results", limits.count, "max_run_results")
        } else if self.total_bytes > limits.total_bytes {
            ("bytes of results", limits.total_bytes, "max_run_result_bytes")
        } else if self.entry_count > limits.entries {
            ("results for the tape", limits.entries, "max_run_entries")
        } else {
            return None;
        };
        let message = format!("the runner gave more than {most} {what}, which is {limit}");
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
            // The call was answered, whatever with.
            *output = nesting::replace_deep_output(std::mem::replace(output, ToolOutput::ok("")));
        }
        if let ResultBody::MessageDelta { .. } = result.body {
            let most = limits.delta_bytes.min(limits.message_bytes.saturating_sub(partial as u64));
            // A text with a hole in it is worse than one that breaks off.
            let overflowed = self.is_overflowing;
            self.is_overflowing |= size > most;
            if self.is_overflowing {
                return self.drop_oversized(&result.body, size, most, !overflowed);
            }
            return ResultVerdict::Accept(result);
        }
        self.is_overflowing &=
            !matches!(result.body, ResultBody::MessageCompleted { .. } | ResultBody::ToolCallStarted { .. });
        let most = max_result_bytes(&result.body, limits);
        if size > most {
            let ResultBody::ToolCallCompleted { output, .. } = &mut result.body else {
                return self.drop_oversized(&result.body, size, most, true);
            };
            // The call was answered, whatever with.
            self.anomalies.too_large += 1;
            *output = ToolOutput::error(format!("the answer of {size} bytes was left out: the host takes {most}"));
        }
        if !is_delta(&result.body) {
            self.uncommitted = (self.uncommitted.0.saturating_add(size), self.uncommitted.1 + 1);
        }
        ResultVerdict::Accept(result)
    }

    fn drop_oversized(&mut self, body: &ResultBody, size: u64, most: u64, tells: bool) -> ResultVerdict {
        self.anomalies.too_large += 1;
        let why = || format!("it has {size} bytes, and the host takes {most} here");
        ResultVerdict::Drop(tells.then(|| DroppedResult { kind: body.kind().to_owned(), reason: why() }))
    }

    /// The result that ends the run. It is heeded whatever its size and number: nobody but the runner can end it in time.
    fn accept_terminal(&mut self, mut result: RunResult, limits: &ResultLimits) -> RunResult {
        self.has_ended = true;
        if let ResultBody::RunFailed { message, code } = &mut result.body {
            let most = usize::try_from(limits.error_bytes).unwrap_or(usize::MAX);
            if message.len() > most {
                self.anomalies.too_large += 1;
                message.truncate(message.floor_char_boundary(most));
                message.push_str(" [...]");
            }
            let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
            if code
                .as_ref()
                .map(FailureCode::as_str)
                .is_some_and(|code| code.len() > MAX_ERROR_CODE_LEN || !code.chars().all(is_code))
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
        let message = format!("the runner ended with a {} that cannot be read: {fault}", fault.kind());
        ResultBody::RunFailed { message, code: Some(ErrorCode::RunFailed.into()) }.into()
    }
}

/// Whether the tape could not be read again with it. Actions have a limit of their own.
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
        | ResultBody::Unread(_) => false,
    }
}

/// Whether it only adds to what is shown: nothing of it stands on the tape by itself.
fn is_delta(body: &ResultBody) -> bool {
    matches!(body, ResultBody::MessageDelta { .. } | ResultBody::ReasoningDelta { .. })
}

fn is_terminal(body: &ResultBody) -> bool {
    matches!(body, ResultBody::RunCompleted { .. } | ResultBody::RunFailed { .. })
}

/// The number of a result, also of one that cannot be read.
fn result_sequence(result: &RunResult) -> Option<u64> {
    let of_unread = || match &result.body {
        ResultBody::Unread(value) => value.get("sequence").and_then(Value::as_u64),
        _ => None,
    };
    result.sequence.or_else(of_unread)
}

fn parse_result(result: RunResult) -> Result<RunResult, ResultParseError> {
    let ResultBody::Unread(value) = result.body else { return Ok(result) };
    let read = RunResult::from_json(value)?;
    Ok(RunResult { run_id: result.run_id.or(read.run_id), usage: read.usage.or(result.usage), ..read })
}

fn max_result_bytes(body: &ResultBody, limits: &ResultLimits) -> u64 {
    match body {
        ResultBody::MessageDelta { .. } | ResultBody::ReasoningDelta { .. } => limits.delta_bytes,
        ResultBody::MessageCompleted { .. } => limits.message_bytes,
        ResultBody::ToolCallStarted { .. } | ResultBody::ToolCallCompleted { .. } => limits.tool_bytes,
        ResultBody::StateUpdated { .. } | ResultBody::ActionRequested(_) => limits.state_bytes,
        // In base64 four bytes stand for three.
        ResultBody::ArtifactCreated { .. } => {
            limits.artifact_bytes.div_ceil(3).saturating_mul(4) + ARTIFACT_ENVELOPE_BYTES
        }
        ResultBody::RunCompleted { .. } | ResultBody::RunFailed { .. } | ResultBody::Unread(_) => u64::MAX,
    }
}

/// How large a result is, as JSON. Of a delta it is what it adds.
fn result_size(body: &ResultBody) -> u64 {
    match body {
        ResultBody::MessageDelta { delta } | ResultBody::ReasoningDelta { delta } => delta.len() as u64,
        ResultBody::Unread(value) => json_size(value),
        body => json_size(body),
    }
}

#[cfg(test)]
#[path = "result_validator_tests.rs"]
mod tests;
