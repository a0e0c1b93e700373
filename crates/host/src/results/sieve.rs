//! What is looked at before a result is heeded: whether it can be read, whether it was there before, whether it is too
//! large, and whether the runner floods its run. A runner that errs or lies costs its own run and nothing else, so all
//! that is kept of it is bounded here.

use capstan_protocol::{ResultBody, ResultFault, RunResult, ToolOutput};
use capstan_turn::RunFailure;
use serde::Serialize;
use serde_json::Value;

use crate::ResultLimits;
use crate::api::size::of_json;
use crate::nesting::{self, Nested as _};

/// How many results that are left out stand on the tape one by one. The rest is counted.
const MOST_TOLD: u32 = 16;
/// How much a run may have given since the last commit before what waits is committed: in bytes, and in results.
const MOST_WAITING: (u64, u64) = (1 << 20, 256);
/// How long a code is at most.
const LONGEST_CODE: usize = 64;
/// What the name and the media type of an artifact may take beside its content.
const BESIDE_CONTENT: u64 = 4096;

/// What is odd about the results of a run, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Noted {
    /// Of a type that nobody knows.
    pub(crate) unknown: u64,
    /// Not what their type says.
    pub(crate) malformed: u64,
    /// Numbered like one that was there before, or lower.
    pub(crate) duplicates: u64,
    /// Places where numbers are missing.
    pub(crate) gaps: u64,
    /// Larger than the host takes.
    pub(crate) too_large: u64,
    /// Not covered by the grant, or not possible.
    pub(crate) refused: u64,
    /// Behind the one that ended the run, as far as they were ready.
    pub(crate) after_end: u64,
}

/// The results of one run, as they come.
#[derive(Debug, Default)]
pub(crate) struct Sieve {
    pub(crate) noted: Noted,
    /// The highest number that the runner gave.
    last: Option<u64>,
    /// How many results there were.
    results: u64,
    /// How many of them are for the tape.
    entries: u64,
    /// How large they were together.
    bytes: u64,
    /// What came since the last commit.
    waiting: (u64, u64),
    /// How many that were left out were told one by one.
    told: u32,
    /// The message that is streamed has become too long, so nothing is added to it any more.
    overflows: bool,
    /// The one that ends the run was there.
    has_ended: bool,
}

/// What becomes of a result.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and nearly always has a result in it")]
pub(crate) enum Sifted {
    /// It is heeded.
    Heed(RunResult),
    /// It is left out.
    Leave(Option<Left>),
    /// There were too many: the run ends.
    End(RunFailure),
}

/// A result that was left out, as it is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) kind: String,
    pub(crate) why: String,
}

impl Sieve {
    /// Looks at a result. `partial` is how long the message is that is being streamed.
    pub(crate) fn sift(&mut self, result: RunResult, limits: &ResultLimits, partial: usize) -> Sifted {
        let size = size_of(&result.body);
        let is_unread = matches!(result.body, ResultBody::Unread(_));
        self.results += 1;
        self.bytes = self.bytes.saturating_add(size);
        let is_again = self.is_again(sequence_of(&result));
        let read = match read(result) {
            Ok(result) if is_terminal(&result.body) => return Sifted::Heed(self.last_one(result, limits)),
            Err(fault) if fault.ends_run() => return Sifted::Heed(self.malformed_end(&fault)),
            read => read,
        };
        self.entries += u64::from(read.as_ref().is_ok_and(|result| !is_delta(&result.body)));
        if let Some(failure) = self.flooded(limits) {
            return Sifted::End(failure);
        }
        if is_again {
            return Sifted::Leave(None);
        }
        let result = match read {
            Ok(result) => result,
            Err(fault) => return self.left_at_fault(&fault),
        };
        let size = if is_unread { size_of(&result.body) } else { size };
        self.sized(result, size, limits, partial)
    }

    /// Whether the result that ends the run was there.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether what waits is to be committed now, so that it is kept on disk and not here.
    pub(crate) fn is_commit_due(&mut self) -> bool {
        let is_due = self.waiting.0 > MOST_WAITING.0 || self.waiting.1 > MOST_WAITING.1;
        if is_due {
            self.waiting = (0, 0);
        }
        is_due
    }

    /// Whether one more result that is left out may be told by itself.
    pub(crate) fn tells_one_more(&mut self) -> bool {
        let tells = self.told < MOST_TOLD;
        self.told += u32::from(tells);
        tells
    }

    /// Counts a number that the runner gave. Those of its results that have none are in order: they come one by one.
    fn is_again(&mut self, sequence: Option<u64>) -> bool {
        let Some(sequence) = sequence else { return false };
        if self.last.is_some_and(|last| sequence <= last) {
            self.noted.duplicates += 1;
            return true;
        }
        // Some begin with 0 and some with 1.
        if sequence > self.last.map_or(1, |last| last.saturating_add(1)) {
            self.noted.gaps += 1;
        }
        self.last = Some(sequence);
        false
    }

    fn flooded(&self, limits: &ResultLimits) -> Option<RunFailure> {
        let (what, most, limit) = if self.results > limits.count {
            ("results", limits.count, "max_run_results")
        } else if self.bytes > limits.total_bytes {
            ("bytes of results", limits.total_bytes, "max_run_result_bytes")
        } else if self.entries > limits.entries {
            ("results for the tape", limits.entries, "max_run_entries")
        } else {
            return None;
        };
        let message = format!("the runner gave more than {most} {what}, which is {limit}");
        Some(RunFailure { message, code: Some("run-flooded".to_owned()) })
    }

    fn left_at_fault(&mut self, fault: &ResultFault) -> Sifted {
        match fault {
            ResultFault::Unknown { .. } => self.noted.unknown += 1,
            ResultFault::Malformed { .. } => self.noted.malformed += 1,
        }
        self.overflows &= fault.kind() != "message.completed";
        Sifted::Leave(Some(Left { kind: fault.kind().to_owned(), why: fault.to_string() }))
    }

    fn sized(&mut self, mut result: RunResult, size: u64, limits: &ResultLimits, partial: usize) -> Sifted {
        if is_too_deep(&result.body) {
            self.noted.malformed += 1;
            let ResultBody::ToolCallCompleted { output, .. } = &mut result.body else {
                self.overflows &= !matches!(result.body, ResultBody::MessageCompleted { .. });
                return Sifted::Leave(Some(Left { kind: result.body.kind().to_owned(), why: nesting::reason() }));
            };
            // The call was answered, whatever with.
            *output = nesting::answer(std::mem::replace(output, ToolOutput::ok("")));
        }
        if let ResultBody::MessageDelta { .. } = result.body {
            let most = limits.delta_bytes.min(limits.message_bytes.saturating_sub(partial as u64));
            // A text with a hole in it is worse than one that breaks off.
            let overflowed = self.overflows;
            self.overflows |= size > most;
            if self.overflows {
                return self.left_for_size(&result.body, size, most, !overflowed);
            }
            return Sifted::Heed(result);
        }
        self.overflows &=
            !matches!(result.body, ResultBody::MessageCompleted { .. } | ResultBody::ToolCallStarted { .. });
        let most = most_bytes(&result.body, limits);
        if size > most {
            let ResultBody::ToolCallCompleted { output, .. } = &mut result.body else {
                return self.left_for_size(&result.body, size, most, true);
            };
            // The call was answered, whatever with.
            self.noted.too_large += 1;
            *output = ToolOutput::error(format!("the answer of {size} bytes was left out: the host takes {most}"));
        }
        if !is_delta(&result.body) {
            self.waiting = (self.waiting.0.saturating_add(size), self.waiting.1 + 1);
        }
        Sifted::Heed(result)
    }

    fn left_for_size(&mut self, body: &ResultBody, size: u64, most: u64, tells: bool) -> Sifted {
        self.noted.too_large += 1;
        let why = || format!("it has {size} bytes, and the host takes {most} here");
        Sifted::Leave(tells.then(|| Left { kind: body.kind().to_owned(), why: why() }))
    }

    /// The result that ends the run. It is heeded whatever its size and number: nobody but the runner can end it in time.
    fn last_one(&mut self, mut result: RunResult, limits: &ResultLimits) -> RunResult {
        self.has_ended = true;
        if let ResultBody::RunFailed { message, code } = &mut result.body {
            let most = usize::try_from(limits.error_bytes).unwrap_or(usize::MAX);
            if message.len() > most {
                self.noted.too_large += 1;
                message.truncate(message.floor_char_boundary(most));
                message.push_str(" [...]");
            }
            let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
            if code.as_ref().is_some_and(|code| code.len() > LONGEST_CODE || !code.chars().all(is_code)) {
                self.noted.malformed += 1;
                *code = None;
            }
        }
        result
    }

    fn malformed_end(&mut self, fault: &ResultFault) -> RunResult {
        self.has_ended = true;
        self.noted.malformed += 1;
        let message = format!("the runner ended with a {} that cannot be read: {fault}", fault.kind());
        ResultBody::RunFailed { message, code: Some("run-failed".to_owned()) }.into()
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
fn sequence_of(result: &RunResult) -> Option<u64> {
    let of_unread = || match &result.body {
        ResultBody::Unread(value) => value.get("sequence").and_then(Value::as_u64),
        _ => None,
    };
    result.sequence.or_else(of_unread)
}

fn read(result: RunResult) -> Result<RunResult, ResultFault> {
    let ResultBody::Unread(value) = result.body else { return Ok(result) };
    let read = RunResult::read(value)?;
    Ok(RunResult { usage: read.usage.or(result.usage), ..read })
}

fn most_bytes(body: &ResultBody, limits: &ResultLimits) -> u64 {
    match body {
        ResultBody::MessageDelta { .. } | ResultBody::ReasoningDelta { .. } => limits.delta_bytes,
        ResultBody::MessageCompleted { .. } => limits.message_bytes,
        ResultBody::ToolCallStarted { .. } | ResultBody::ToolCallCompleted { .. } => limits.tool_bytes,
        ResultBody::StateUpdated { .. } | ResultBody::ActionRequested(_) => limits.state_bytes,
        // In base64 four bytes stand for three.
        ResultBody::ArtifactCreated { .. } => limits.artifact_bytes.div_ceil(3).saturating_mul(4) + BESIDE_CONTENT,
        ResultBody::RunCompleted { .. } | ResultBody::RunFailed { .. } | ResultBody::Unread(_) => u64::MAX,
    }
}

/// How large a result is, as JSON. Of a delta it is what it adds.
fn size_of(body: &ResultBody) -> u64 {
    match body {
        ResultBody::MessageDelta { delta } | ResultBody::ReasoningDelta { delta } => delta.len() as u64,
        ResultBody::Unread(value) => of_json(value),
        body => of_json(body),
    }
}

#[cfg(test)]
#[path = "sieve_tests.rs"]
mod tests;
