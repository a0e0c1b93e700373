//! What follows an answer of the model.

/// How many answers of a run may end in the middle of their only call. A model that is told and does it again will hardly
/// stop.
const MAX_TRUNCATED_CALLS: u32 = 2;

/// What came of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplySummary {
    /// It has words.
    pub(crate) has_text: bool,
    pub(crate) calls: ReplyCalls,
    /// It reached the limit of tokens.
    pub(crate) truncated: bool,
}

/// The calls of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyCalls {
    None,
    /// Only one that the limit of tokens cut off.
    Truncated,
    /// At least one that is whole.
    Complete,
}

/// What is to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Its calls are made, and the model is asked again.
    CallTools,
    /// The same is asked once more.
    RetryModel,
    /// The model is done.
    Finish,
    /// The run ends: this model gives no answer that can be used.
    Fail(&'static str),
}

/// The answers of a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReplyTracker {
    has_spoken: bool,
    /// The answer before said nothing.
    was_last_empty: bool,
    truncated_calls: u32,
}

impl ReplyTracker {
    /// What follows the answer that came. One that says nothing is no answer: it is asked for once more, and then only a
    /// run that has said something before can end with it.
    pub(crate) fn next_step(&mut self, came: ReplySummary) -> NextStep {
        self.has_spoken |= came.has_text;
        let was_silent = std::mem::take(&mut self.was_last_empty);
        match came {
            ReplySummary { calls: ReplyCalls::Complete, .. } => NextStep::CallTools,
            ReplySummary { calls: ReplyCalls::Truncated, .. } => {
                self.truncated_calls += 1;
                if self.truncated_calls > MAX_TRUNCATED_CALLS {
                    NextStep::Fail("the model's answers reach their limit of tokens in the middle of a call")
                } else {
                    NextStep::CallTools
                }
            }
            ReplySummary { has_text: true, .. } => NextStep::Finish,
            ReplySummary { truncated: true, .. } => {
                NextStep::Fail("the model's answer reached its limit of tokens before it said anything")
            }
            _ if !was_silent => {
                self.was_last_empty = true;
                NextStep::RetryModel
            }
            _ if self.has_spoken => NextStep::Finish,
            _ => NextStep::Fail("the model answered with nothing, also when it was asked once more"),
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

    fn last_step(came: &[ReplySummary]) -> NextStep {
        let mut answers = ReplyTracker::default();
        came.iter().map(|came| answers.next_step(*came)).last().unwrap()
    }

    #[test]
    fn a01_calls_go_on_and_words_end() {
        assert_eq!(last_step(&[CALL_REPLY]), NextStep::CallTools);
        assert_eq!(last_step(&[ReplySummary { has_text: true, ..CALL_REPLY }]), NextStep::CallTools);
        assert_eq!(last_step(&[CALL_REPLY, TEXT_REPLY]), NextStep::Finish);
        assert_eq!(
            last_step(&[ReplySummary { truncated: true, ..TEXT_REPLY }]),
            NextStep::Finish,
            "half an answer is one"
        );
    }

    #[test]
    fn a01_nothing_is_asked_for_once_more_and_is_then_no_answer() {
        assert_eq!(last_step(&[EMPTY_REPLY]), NextStep::RetryModel);
        assert_eq!(last_step(&[EMPTY_REPLY, TEXT_REPLY]), NextStep::Finish);
        assert!(matches!(last_step(&[EMPTY_REPLY, EMPTY_REPLY]), NextStep::Fail(_)));
        assert!(
            matches!(last_step(&[CALL_REPLY, EMPTY_REPLY, EMPTY_REPLY]), NextStep::Fail(_)),
            "calls say nothing to the user"
        );
        assert_eq!(
            last_step(&[ReplySummary { has_text: true, ..CALL_REPLY }, EMPTY_REPLY, EMPTY_REPLY]),
            NextStep::Finish,
            "it has said something"
        );
        assert_eq!(last_step(&[EMPTY_REPLY, CALL_REPLY, EMPTY_REPLY]), NextStep::RetryModel);
    }

    #[test]
    fn a01_a_limit_before_the_first_word_is_an_error_at_once() {
        assert!(matches!(last_step(&[ReplySummary { truncated: true, ..EMPTY_REPLY }]), NextStep::Fail(_)));
    }

    #[test]
    fn a01_a_model_that_never_finishes_a_call_is_given_up() {
        assert_eq!(last_step(&[TRUNCATED_REPLY, TRUNCATED_REPLY]), NextStep::CallTools);
        assert!(matches!(last_step(&[TRUNCATED_REPLY, TRUNCATED_REPLY, TRUNCATED_REPLY]), NextStep::Fail(_)));
        let with_others = ReplySummary { calls: ReplyCalls::Complete, ..TRUNCATED_REPLY };
        assert_eq!(last_step(&[with_others, with_others, with_others]), NextStep::CallTools);
    }
}
