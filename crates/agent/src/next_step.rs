//! Decision on what follows a model reply.

/// Maximum number of replies per run that are cut off in the middle of their only call. A model that repeats this after
/// being told is unlikely to stop.
const MAX_TRUNCATED_CALLS: u32 = 2;

/// Properties of a reply that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplySummary {
    /// The reply has text.
    pub(crate) has_text: bool,
    pub(crate) calls: ReplyCalls,
    /// The reply reached the token limit.
    pub(crate) truncated: bool,
}

/// Tool calls of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyCalls {
    None,
    /// Only calls that were cut off by the token limit.
    Truncated,
    /// At least one complete call.
    Complete,
}

/// Decision on what follows a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Execute the calls, then call the model again.
    CallTools,
    /// Call the model again with the same request.
    RetryModel,
    /// End the run successfully.
    Finish,
    /// Fail the run: the model gives no usable reply.
    Fail(&'static str),
}

/// Replies of a run, as far as the next decision depends on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReplyTracker {
    has_spoken: bool,
    /// The previous reply was empty.
    was_last_empty: bool,
    truncated_calls: u32,
}

impl ReplyTracker {
    /// Decides what follows a reply. An empty reply is retried once; a second one ends the run, successfully only if an
    /// earlier reply had text.
    pub(crate) fn next_step(&mut self, reply: ReplySummary) -> NextStep {
        self.has_spoken |= reply.has_text;
        let was_empty = std::mem::take(&mut self.was_last_empty);
        match reply {
            ReplySummary { calls: ReplyCalls::Complete, .. } => NextStep::CallTools,
            ReplySummary { calls: ReplyCalls::Truncated, .. } => {
                self.truncated_calls += 1;
                if self.truncated_calls > MAX_TRUNCATED_CALLS {
                    NextStep::Fail("the model's replies reach the token limit in the middle of a tool call")
                } else {
                    NextStep::CallTools
                }
            }
            ReplySummary { has_text: true, .. } => NextStep::Finish,
            ReplySummary { truncated: true, .. } => {
                NextStep::Fail("the model's reply reached the token limit before it had any text")
            }
            _ if !was_empty => {
                self.was_last_empty = true;
                NextStep::RetryModel
            }
            _ if self.has_spoken => NextStep::Finish,
            _ => NextStep::Fail("the model's reply is empty, even after a retry"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NextStep, ReplyCalls, ReplySummary, ReplyTracker};

    const EMPTY_REPLY: ReplySummary = ReplySummary { has_text: false, calls: ReplyCalls::None, truncated: false };
    const TEXT_REPLY: ReplySummary = ReplySummary { has_text: true, ..EMPTY_REPLY };
    const CALL_REPLY: ReplySummary = ReplySummary { calls: ReplyCalls::Complete, ..EMPTY_REPLY };
    const TRUNCATED_REPLY: ReplySummary = ReplySummary { calls: ReplyCalls::Truncated, truncated: true, ..EMPTY_REPLY };

    fn last_step(reply: &[ReplySummary]) -> NextStep {
        let mut tracker = ReplyTracker::default();
        reply.iter().map(|reply| tracker.next_step(*reply)).last().unwrap()
    }

    #[test]
    fn a01_calls_continue_the_loop_and_text_ends_it() {
        assert_eq!(last_step(&[CALL_REPLY]), NextStep::CallTools);
        assert_eq!(last_step(&[ReplySummary { has_text: true, ..CALL_REPLY }]), NextStep::CallTools);
        assert_eq!(last_step(&[CALL_REPLY, TEXT_REPLY]), NextStep::Finish);
        assert_eq!(
            last_step(&[ReplySummary { truncated: true, ..TEXT_REPLY }]),
            NextStep::Finish,
            "a truncated text is a reply"
        );
    }

    #[test]
    fn a01_empty_reply_is_retried_once_and_then_fails() {
        assert_eq!(last_step(&[EMPTY_REPLY]), NextStep::RetryModel);
        assert_eq!(last_step(&[EMPTY_REPLY, TEXT_REPLY]), NextStep::Finish);
        assert!(matches!(last_step(&[EMPTY_REPLY, EMPTY_REPLY]), NextStep::Fail(_)));
        assert!(
            matches!(last_step(&[CALL_REPLY, EMPTY_REPLY, EMPTY_REPLY]), NextStep::Fail(_)),
            "calls are not text for the user"
        );
        assert_eq!(
            last_step(&[ReplySummary { has_text: true, ..CALL_REPLY }, EMPTY_REPLY, EMPTY_REPLY]),
            NextStep::Finish,
            "an earlier reply had text"
        );
        assert_eq!(last_step(&[EMPTY_REPLY, CALL_REPLY, EMPTY_REPLY]), NextStep::RetryModel);
    }

    #[test]
    fn a01_token_limit_before_any_text_fails_at_once() {
        assert!(matches!(last_step(&[ReplySummary { truncated: true, ..EMPTY_REPLY }]), NextStep::Fail(_)));
    }

    #[test]
    fn a01_repeatedly_truncated_calls_fail_the_run() {
        assert_eq!(last_step(&[TRUNCATED_REPLY, TRUNCATED_REPLY]), NextStep::CallTools);
        assert!(matches!(last_step(&[TRUNCATED_REPLY, TRUNCATED_REPLY, TRUNCATED_REPLY]), NextStep::Fail(_)));
        let with_others = ReplySummary { calls: ReplyCalls::Complete, ..TRUNCATED_REPLY };
        assert_eq!(last_step(&[with_others, with_others, with_others]), NextStep::CallTools);
    }
}
