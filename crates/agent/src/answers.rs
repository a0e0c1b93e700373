//! What follows an answer of the model.

/// How many answers of a run may end in the middle of their only call. A model that is told and does it again will hardly
/// stop.
const MOST_CUT_SHORT: u32 = 2;

/// What came of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    /// It has words.
    pub(crate) spoke: bool,
    pub(crate) calls: Calls,
    /// It reached the limit of tokens.
    pub(crate) truncated: bool,
}

/// The calls of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    None,
    /// Only one that the limit of tokens cut off.
    CutOff,
    /// At least one that is whole.
    Whole,
}

/// What is to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its calls are made, and the model is asked again.
    Call,
    /// The same is asked once more.
    AskAgain,
    /// The model is done.
    End,
    /// The run ends: this model gives no answer that can be used.
    Fail(&'static str),
}

/// The answers of a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    spoke: bool,
    /// The answer before said nothing.
    silent: bool,
    cut_short: u32,
}

impl Answers {
    /// What follows the answer that came. One that says nothing is no answer: it is asked for once more, and then only a
    /// run that has said something before can end with it.
    pub(crate) fn next(&mut self, came: Came) -> Next {
        self.spoke |= came.spoke;
        let was_silent = std::mem::take(&mut self.silent);
        match came {
            Came { calls: Calls::Whole, .. } => Next::Call,
            Came { calls: Calls::CutOff, .. } => {
                self.cut_short += 1;
                if self.cut_short > MOST_CUT_SHORT {
                    Next::Fail("the model's answers reach their limit of tokens in the middle of a call")
                } else {
                    Next::Call
                }
            }
            Came { spoke: true, .. } => Next::End,
            Came { truncated: true, .. } => {
                Next::Fail("the model's answer reached its limit of tokens before it said anything")
            }
            _ if !was_silent => {
                self.silent = true;
                Next::AskAgain
            }
            _ if self.spoke => Next::End,
            _ => Next::Fail("the model answered with nothing, also when it was asked once more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, Calls, Came, Next};

    const NOTHING: Came = Came { spoke: false, calls: Calls::None, truncated: false };
    const TEXT: Came = Came { spoke: true, ..NOTHING };
    const CALLS: Came = Came { calls: Calls::Whole, ..NOTHING };
    const CUT: Came = Came { calls: Calls::CutOff, truncated: true, ..NOTHING };

    fn last(came: &[Came]) -> Next {
        let mut answers = Answers::default();
        came.iter().map(|came| answers.next(*came)).last().unwrap()
    }

    #[test]
    fn a01_calls_go_on_and_words_end() {
        assert_eq!(last(&[CALLS]), Next::Call);
        assert_eq!(last(&[Came { spoke: true, ..CALLS }]), Next::Call);
        assert_eq!(last(&[CALLS, TEXT]), Next::End);
        assert_eq!(last(&[Came { truncated: true, ..TEXT }]), Next::End, "half an answer is one");
    }

    #[test]
    fn a01_nothing_is_asked_for_once_more_and_is_then_no_answer() {
        assert_eq!(last(&[NOTHING]), Next::AskAgain);
        assert_eq!(last(&[NOTHING, TEXT]), Next::End);
        assert!(matches!(last(&[NOTHING, NOTHING]), Next::Fail(_)));
        assert!(matches!(last(&[CALLS, NOTHING, NOTHING]), Next::Fail(_)), "calls say nothing to the user");
        assert_eq!(last(&[Came { spoke: true, ..CALLS }, NOTHING, NOTHING]), Next::End, "it has said something");
        assert_eq!(last(&[NOTHING, CALLS, NOTHING]), Next::AskAgain);
    }

    #[test]
    fn a01_a_limit_before_the_first_word_is_an_error_at_once() {
        assert!(matches!(last(&[Came { truncated: true, ..NOTHING }]), Next::Fail(_)));
    }

    #[test]
    fn a01_a_model_that_never_finishes_a_call_is_given_up() {
        assert_eq!(last(&[CUT, CUT]), Next::Call);
        assert!(matches!(last(&[CUT, CUT, CUT]), Next::Fail(_)));
        let with_others = Came { calls: Calls::Whole, ..CUT };
        assert_eq!(last(&[with_others, with_others, with_others]), Next::Call);
    }
}
