//! Order and concurrency of the calls of a step.

use capstan_hooks::contracts::ToolEffect;

/// Maximum number of calls of a step that run at the same time.
const MAX_CONCURRENT_TOOL_CALLS: usize = 8;

/// The calls of a step, and how far each has come. A call begins when every call before it that it meets is on record.
pub(super) struct CallSchedule(Vec<(ToolEffect, CallProgress)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallProgress {
    Waiting,
    Running,
    Recorded,
}

impl CallSchedule {
    /// The calls of a step, in the model's order, by what they touch.
    pub(super) fn new(calls: impl IntoIterator<Item = ToolEffect>) -> Self {
        Self(calls.into_iter().map(|touches| (touches, CallProgress::Waiting)).collect())
    }

    /// A call that may begin now. It counts as begun.
    pub(super) fn start_next(&mut self) -> Option<usize> {
        let running = self.0.iter().filter(|(_, progress)| *progress == CallProgress::Running).count();
        if running >= MAX_CONCURRENT_TOOL_CALLS {
            return None;
        }
        let position = (0..self.0.len()).find(|position| self.can_start(*position))?;
        self.0[position].1 = CallProgress::Running;
        Some(position)
    }

    fn can_start(&self, position: usize) -> bool {
        let (touches, progress) = &self.0[position];
        let stands_in_the_way = |(other, progress): &(ToolEffect, CallProgress)| {
            *progress != CallProgress::Recorded && other.conflicts_with(touches)
        };
        *progress == CallProgress::Waiting && !self.0[..position].iter().any(stands_in_the_way)
    }

    /// The result of a call is on record.
    pub(super) fn mark_recorded(&mut self, position: usize) {
        self.0[position].1 = CallProgress::Recorded;
    }
}

#[cfg(test)]
mod tests {
    use super::{CallSchedule, MAX_CONCURRENT_TOOL_CALLS, ToolEffect};

    fn file(name: &str) -> ToolEffect {
        ToolEffect::Writes(name.to_owned())
    }

    fn start_all(schedule: &mut CallSchedule) -> Vec<usize> {
        std::iter::from_fn(|| schedule.start_next()).collect()
    }

    #[test]
    fn a10_calls_that_only_look_run_together_up_to_a_bound() {
        let mut schedule = CallSchedule::new(vec![ToolEffect::Reads; MAX_CONCURRENT_TOOL_CALLS + 2]);
        assert_eq!(start_all(&mut schedule), (0..MAX_CONCURRENT_TOOL_CALLS).collect::<Vec<_>>());
        schedule.mark_recorded(3);
        assert_eq!(start_all(&mut schedule), [MAX_CONCURRENT_TOOL_CALLS]);
    }

    #[test]
    fn a10_effects_keep_the_order_of_the_model() {
        let mut schedule =
            CallSchedule::new([ToolEffect::Reads, ToolEffect::Unrestricted, ToolEffect::Reads, ToolEffect::None]);
        assert_eq!(start_all(&mut schedule), [0, 3], "a call without effects waits for no other");
        schedule.mark_recorded(3);
        assert_eq!(start_all(&mut schedule), [0; 0]);
        schedule.mark_recorded(0);
        assert_eq!(start_all(&mut schedule), [1], "what looks afterwards must see what it did");
        schedule.mark_recorded(1);
        assert_eq!(start_all(&mut schedule), [2]);
    }

    #[test]
    fn a10_effects_on_different_things_run_together_and_on_the_same_thing_in_order() {
        let mut schedule = CallSchedule::new([file("a"), file("b"), file("a"), ToolEffect::Reads]);
        assert_eq!(start_all(&mut schedule), [0, 1]);
        schedule.mark_recorded(0);
        assert_eq!(start_all(&mut schedule), [2]);
        schedule.mark_recorded(1);
        schedule.mark_recorded(2);
        assert_eq!(start_all(&mut schedule), [3]);
    }
}
