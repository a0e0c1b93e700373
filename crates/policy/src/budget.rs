//! Step and token budget of a run and its child runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use capstan_protocol::CodedError;

/// Step and token budget of a run. Usage of a child run counts for every run above it.
pub struct Budget {
    steps: UsageAllowance,
    tokens: UsageAllowance,
    parent: Option<Arc<Budget>>,
}

/// Counter with an optional limit.
struct UsageAllowance {
    limit: Option<u64>,
    used: AtomicU64,
}

/// Exhausted resource of a budget, with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CodedError)]
pub enum BudgetExhausted {
    /// Model calls.
    #[code(MaxSteps)]
    Steps(u64),
    /// Tokens of all model calls.
    #[code(MaxRunTokens)]
    Tokens(u64),
}

impl Budget {
    /// Budget of a run that serves an event.
    pub fn new(max_steps: u64, max_tokens: Option<u64>) -> Self {
        let steps = UsageAllowance::new(Some(max_steps));
        Self { steps, tokens: UsageAllowance::new(max_tokens), parent: None }
    }

    /// Budget of a child run, capped by the remainder of this one.
    pub fn child(self: &Arc<Self>, steps: Option<u64>, tokens: Option<u64>) -> Self {
        Self {
            steps: UsageAllowance::new(min_limit(steps, self.remaining(|budget| &budget.steps))),
            tokens: UsageAllowance::new(min_limit(tokens, self.remaining(|budget| &budget.tokens))),
            parent: Some(Arc::clone(self)),
        }
    }

    /// Remaining steps; `None` without a limit.
    pub fn remaining_steps(&self) -> Option<u64> {
        self.remaining(|budget| &budget.steps)
    }

    /// Returns true if this budget or one above it limits tokens.
    pub fn has_token_limit(&self) -> bool {
        self.chain().any(|budget| budget.tokens.limit.is_some())
    }

    /// Counts a model call that is about to begin. Fails when this budget or one above it is exhausted.
    pub fn begin_step(&self) -> Result<(), BudgetExhausted> {
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

    /// Counts tokens that a model call used.
    pub fn use_tokens(&self, tokens: u64) {
        self.chain().for_each(|budget| budget.tokens.consume(tokens));
    }

    fn remaining(&self, of: impl Fn(&Self) -> &UsageAllowance) -> Option<u64> {
        self.chain().filter_map(|budget| of(budget).remaining()).min()
    }

    /// The budget and all above it.
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

    /// The limit, once it is reached.
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

    fn budget(max_steps: u64, max_tokens: Option<u64>) -> Arc<Budget> {
        Arc::new(Budget::new(max_steps, max_tokens))
    }

    #[test]
    fn a01_x09_a_run_ends_with_its_steps_or_its_tokens() {
        let run = budget(1, Some(10));
        assert_eq!(run.begin_step(), Ok(()));
        assert_eq!(run.begin_step(), Err(BudgetExhausted::Steps(1)));
        run.use_tokens(10);
        assert_eq!(run.begin_step(), Err(BudgetExhausted::Tokens(10)));
    }

    #[test]
    fn x09_use_of_a_child_counts_for_the_runs_above_it() {
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
