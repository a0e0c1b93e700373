//! Order and concurrency of the calls of a step.

use capstan_hooks::contracts::ToolEffect;

/// Maximum number of calls of a step that run at the same time.
const MAX_CONCURRENT_TOOL_CALLS: usize = 8;

/// Calls of a step, with their progress. A call starts when every earlier call that conflicts with it is recorded.
pub(super) struct CallSchedule(Vec<(ToolEffect, CallProgress)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallProgress {
    Waiting,
    Running,
    Recorded,
}

impl CallSchedule {
    /// Schedule of the calls of a step, given by their effects, in the model's order.
    pub(super) fn new(effects: impl IntoIterator<Item = ToolEffect>) -> Self {
        Self(effects.into_iter().map(|effect| (effect, CallProgress::Waiting)).collect())
    }

    /// Marks the next call that can start as running, and returns its position.
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
        let (effect, progress) = &self.0[position];
        let blocks = |(other, progress): &(ToolEffect, CallProgress)| {
            *progress != CallProgress::Recorded && other.conflicts_with(effect)
        };
        *progress == CallProgress::Waiting && !self.0[..position].iter().any(blocks)
    }

    /// Marks a call as recorded.
    pub(super) fn mark_recorded(&mut self, position: usize) {
        self.0[position].1 = CallProgress::Recorded;
    }
}

#[cfg(test)]
mod tests {
    use super::{CallSchedule, MAX_CONCURRENT_TOOL_CALLS, ToolEffect};

    fn writes(file: &str) -> ToolEffect {
        ToolEffect::Writes(file.to_owned())
    }

    fn start_all(schedule: &mut CallSchedule) -> Vec<usize> {
        std::iter::from_fn(|| schedule.start_next()).collect()
    }

    #[test]
    fn a10_read_only_calls_run_concurrently_up_to_a_bound() {
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
        assert_eq!(start_all(&mut schedule), [1], "a later read must see the effect");
        schedule.mark_recorded(1);
        assert_eq!(start_all(&mut schedule), [2]);
    }

    #[test]
    fn a10_writes_to_different_files_run_concurrently_and_to_the_same_file_in_order() {
        let mut schedule = CallSchedule::new([writes("a"), writes("b"), writes("a"), ToolEffect::Reads]);
        assert_eq!(start_all(&mut schedule), [0, 1]);
        schedule.mark_recorded(0);
        assert_eq!(start_all(&mut schedule), [2]);
        schedule.mark_recorded(1);
        schedule.mark_recorded(2);
        assert_eq!(start_all(&mut schedule), [3]);
    }
}
