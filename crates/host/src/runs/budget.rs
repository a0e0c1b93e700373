//! How much a run may use, and how much of it is used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use capstan_protocol::CodedError;

use crate::RunLimits;

/// The budget of a run. What a child run uses is used up for all those above it.
pub(crate) struct Budget {
    steps: UsageAllowance,
    tokens: UsageAllowance,
    parent: Option<Arc<Budget>>,
}

/// A number of things that may be used.
struct UsageAllowance {
    limit: Option<u64>,
    used: AtomicU64,
}

/// What is used up, and how much of it there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CodedError)]
pub(crate) enum BudgetExhausted {
    #[code(MaxSteps)]
    Steps(u64),
    #[code(MaxRunTokens)]
    Tokens(u64),
}

impl Budget {
    /// The budget of a run that answers an event.
    pub(crate) fn new(limits: &RunLimits) -> Self {
        let (steps, tokens) = (Some(u64::from(limits.max_steps)), limits.max_run_tokens);
        Self { steps: UsageAllowance::new(steps), tokens: UsageAllowance::new(tokens), parent: None }
    }

    /// The budget of a child run: no more than is left of this one.
    pub(crate) fn child(self: &Arc<Self>, steps: Option<u64>, tokens: Option<u64>) -> Self {
        Self {
            steps: UsageAllowance::new(min_limit(steps, self.remaining(|budget| &budget.steps))),
            tokens: UsageAllowance::new(min_limit(tokens, self.remaining(|budget| &budget.tokens))),
            parent: Some(Arc::clone(self)),
        }
    }

    /// How many steps are left; nothing where there is no limit.
    pub(crate) fn remaining_steps(&self) -> Option<u64> {
        self.remaining(|budget| &budget.steps)
    }

    /// Whether somebody counts the tokens.
    pub(crate) fn has_token_limit(&self) -> bool {
        self.chain().any(|budget| budget.tokens.limit.is_some())
    }

    /// A model call is to be made: refused when the run, or one above it, has used up what it has.
    pub(crate) fn begin_step(&self) -> Result<(), BudgetExhausted> {
        for budget in self.chain() {
            if let Some(most) = budget.tokens.exhausted_limit() {
                return Err(BudgetExhausted::Tokens(most));
            }
            if let Some(most) = budget.steps.exhausted_limit() {
                return Err(BudgetExhausted::Steps(most));
            }
        }
        self.chain().for_each(|budget| budget.steps.consume(1));
        Ok(())
    }

    /// Tokens were used.
    pub(crate) fn use_tokens(&self, tokens: u64) {
        self.chain().for_each(|budget| budget.tokens.consume(tokens));
    }

    fn remaining(&self, of: impl Fn(&Self) -> &UsageAllowance) -> Option<u64> {
        self.chain().filter_map(|budget| of(budget).remaining()).min()
    }

    /// This budget and those above it.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |budget| budget.parent.as_deref())
    }
}

impl UsageAllowance {
    fn new(most: Option<u64>) -> Self {
        Self { limit: most, used: AtomicU64::new(0) }
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.used.load(Ordering::SeqCst)))
    }

    /// How much there was, when nothing is left of it.
    fn exhausted_limit(&self) -> Option<u64> {
        self.limit.filter(|_| self.remaining() == Some(0))
    }

    fn consume(&self, number: u64) {
        self.used.fetch_add(number, Ordering::SeqCst);
    }
}

fn min_limit(asked: Option<u64>, left: Option<u64>) -> Option<u64> {
    asked.into_iter().chain(left).min()
}

impl fmt::Display for BudgetExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(most) => write!(f, "the run did not finish within {most} steps"),
            Self::Tokens(most) => write!(f, "the run did not finish within {most} tokens"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Budget, BudgetExhausted};
    use crate::RunLimits;

    fn budget(max_steps: u32, max_run_tokens: Option<u64>) -> Arc<Budget> {
        Arc::new(Budget::new(&RunLimits { max_steps, max_run_tokens, ..RunLimits::default() }))
    }

    #[test]
    fn a01_a_run_ends_with_its_steps_or_its_tokens() {
        let run = budget(1, Some(10));
        assert_eq!(run.begin_step(), Ok(()));
        assert_eq!(run.begin_step(), Err(BudgetExhausted::Steps(1)));
        run.use_tokens(10);
        assert_eq!(run.begin_step(), Err(BudgetExhausted::Tokens(10)));
    }

    #[test]
    fn k04_what_a_child_uses_is_used_up_for_those_above_it() {
        let run = budget(4, Some(100));
        run.use_tokens(40);
        let child = Arc::new(run.child(Some(50), Some(1000)));
        assert_eq!(child.remaining_steps(), Some(4), "no more than is left of the parent's");
        let grandchild = child.child(Some(2), None);
        assert_eq!([grandchild.begin_step(), grandchild.begin_step()], [Ok(()), Ok(())]);
        assert_eq!(grandchild.begin_step(), Err(BudgetExhausted::Steps(2)));
        assert_eq!(run.remaining_steps(), Some(2));
        grandchild.use_tokens(60);
        assert_eq!(run.begin_step(), Err(BudgetExhausted::Tokens(100)));
        assert_eq!(child.begin_step(), Err(BudgetExhausted::Tokens(60)));
    }
}
