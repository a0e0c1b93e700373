//! How much a run may use, and how much of it is used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Limits;

/// The budget of a run. What a child run uses is used up for all those above it.
pub(crate) struct Budget {
    steps: Allowance,
    tokens: Allowance,
    above: Option<Arc<Budget>>,
}

/// A number of things that may be used.
struct Allowance {
    most: Option<u64>,
    used: AtomicU64,
}

/// What is used up, and how much of it there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhausted {
    Steps(u64),
    Tokens(u64),
}

impl Budget {
    /// The budget of a run that answers an event.
    pub(crate) fn new(limits: &Limits) -> Self {
        let (steps, tokens) = (Some(u64::from(limits.max_steps)), limits.max_run_tokens);
        Self { steps: Allowance::new(steps), tokens: Allowance::new(tokens), above: None }
    }

    /// The budget of a child run: no more than is left of this one.
    pub(crate) fn child(self: &Arc<Self>, steps: Option<u64>, tokens: Option<u64>) -> Self {
        Self {
            steps: Allowance::new(least(steps, self.left(|budget| &budget.steps))),
            tokens: Allowance::new(least(tokens, self.left(|budget| &budget.tokens))),
            above: Some(Arc::clone(self)),
        }
    }

    /// How many steps are left; nothing where there is no limit.
    pub(crate) fn steps_left(&self) -> Option<u64> {
        self.left(|budget| &budget.steps)
    }

    /// Whether somebody counts the tokens.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.chain().any(|budget| budget.tokens.most.is_some())
    }

    /// A model call is to be made: refused when the run, or one above it, has used up what it has.
    pub(crate) fn begin_step(&self) -> Result<(), Exhausted> {
        for budget in self.chain() {
            if let Some(most) = budget.tokens.spent() {
                return Err(Exhausted::Tokens(most));
            }
            if let Some(most) = budget.steps.spent() {
                return Err(Exhausted::Steps(most));
            }
        }
        self.chain().for_each(|budget| budget.steps.take(1));
        Ok(())
    }

    /// Tokens were used.
    pub(crate) fn use_tokens(&self, tokens: u64) {
        self.chain().for_each(|budget| budget.tokens.take(tokens));
    }

    fn left(&self, of: impl Fn(&Self) -> &Allowance) -> Option<u64> {
        self.chain().filter_map(|budget| of(budget).left()).min()
    }

    /// This budget and those above it.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |budget| budget.above.as_deref())
    }
}

impl Allowance {
    fn new(most: Option<u64>) -> Self {
        Self { most, used: AtomicU64::new(0) }
    }

    fn left(&self) -> Option<u64> {
        Some(self.most?.saturating_sub(self.used.load(Ordering::SeqCst)))
    }

    /// How much there was, when nothing is left of it.
    fn spent(&self) -> Option<u64> {
        self.most.filter(|_| self.left() == Some(0))
    }

    fn take(&self, number: u64) {
        self.used.fetch_add(number, Ordering::SeqCst);
    }
}

fn least(asked: Option<u64>, left: Option<u64>) -> Option<u64> {
    asked.into_iter().chain(left).min()
}

impl Exhausted {
    /// The stable code, which has a page in the documentation.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Steps(_) => "max-steps",
            Self::Tokens(_) => "max-run-tokens",
        }
    }
}

impl fmt::Display for Exhausted {
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

    use super::{Budget, Exhausted};
    use crate::Limits;

    fn budget(max_steps: u32, max_run_tokens: Option<u64>) -> Arc<Budget> {
        Arc::new(Budget::new(&Limits { max_steps, max_run_tokens, ..Limits::default() }))
    }

    #[test]
    fn a01_a_run_ends_with_its_steps_or_its_tokens() {
        let run = budget(1, Some(10));
        assert_eq!(run.begin_step(), Ok(()));
        assert_eq!(run.begin_step(), Err(Exhausted::Steps(1)));
        run.use_tokens(10);
        assert_eq!(run.begin_step(), Err(Exhausted::Tokens(10)));
    }

    #[test]
    fn k04_what_a_child_uses_is_used_up_for_those_above_it() {
        let run = budget(4, Some(100));
        run.use_tokens(40);
        let child = Arc::new(run.child(Some(50), Some(1000)));
        assert_eq!(child.steps_left(), Some(4), "no more than is left of the parent's");
        let grandchild = child.child(Some(2), None);
        assert_eq!([grandchild.begin_step(), grandchild.begin_step()], [Ok(()), Ok(())]);
        assert_eq!(grandchild.begin_step(), Err(Exhausted::Steps(2)));
        assert_eq!(run.steps_left(), Some(2));
        grandchild.use_tokens(60);
        assert_eq!(run.begin_step(), Err(Exhausted::Tokens(100)));
        assert_eq!(child.begin_step(), Err(Exhausted::Tokens(60)));
    }
}
