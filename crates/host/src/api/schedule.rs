//! Which calls of a step may run at the same time.

use capstan_hooks::contracts::Touches;

/// How many calls of a step run at the same time at most.
const MOST: usize = 8;

/// The calls of a step, and how far each has come. A call begins when every call before it that it meets is on record.
pub(super) struct Schedule(Vec<(Touches, Progress)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waits,
    Runs,
    OnRecord,
}

impl Schedule {
    /// The calls of a step, in the model's order, by what they touch.
    pub(super) fn new(calls: impl IntoIterator<Item = Touches>) -> Self {
        Self(calls.into_iter().map(|touches| (touches, Progress::Waits)).collect())
    }

    /// A call that may begin now. It counts as begun.
    pub(super) fn next(&mut self) -> Option<usize> {
        let running = self.0.iter().filter(|(_, progress)| *progress == Progress::Runs).count();
        if running >= MOST {
            return None;
        }
        let position = (0..self.0.len()).find(|position| self.may_begin(*position))?;
        self.0[position].1 = Progress::Runs;
        Some(position)
    }

    fn may_begin(&self, position: usize) -> bool {
        let (touches, progress) = &self.0[position];
        let stands_in_the_way =
            |(other, progress): &(Touches, Progress)| *progress != Progress::OnRecord && other.meets(touches);
        *progress == Progress::Waits && !self.0[..position].iter().any(stands_in_the_way)
    }

    /// The result of a call is on record.
    pub(super) fn is_on_record(&mut self, position: usize) {
        self.0[position].1 = Progress::OnRecord;
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Schedule, Touches};

    fn file(name: &str) -> Touches {
        Touches::One(name.to_owned())
    }

    fn begun(schedule: &mut Schedule) -> Vec<usize> {
        std::iter::from_fn(|| schedule.next()).collect()
    }

    #[test]
    fn a10_calls_that_only_look_run_together_up_to_a_bound() {
        let mut schedule = Schedule::new(vec![Touches::Looks; MOST + 2]);
        assert_eq!(begun(&mut schedule), (0..MOST).collect::<Vec<_>>());
        schedule.is_on_record(3);
        assert_eq!(begun(&mut schedule), [MOST]);
    }

    #[test]
    fn a10_effects_keep_the_order_of_the_model() {
        let mut schedule = Schedule::new([Touches::Looks, Touches::Anything, Touches::Looks, Touches::Nothing]);
        assert_eq!(begun(&mut schedule), [0, 3], "what touches nothing waits for nobody");
        schedule.is_on_record(3);
        assert_eq!(begun(&mut schedule), [0; 0]);
        schedule.is_on_record(0);
        assert_eq!(begun(&mut schedule), [1], "what looks afterwards must see what it did");
        schedule.is_on_record(1);
        assert_eq!(begun(&mut schedule), [2]);
    }

    #[test]
    fn a10_effects_on_different_things_run_together_and_on_the_same_thing_in_order() {
        let mut schedule = Schedule::new([file("a"), file("b"), file("a"), Touches::Looks]);
        assert_eq!(begun(&mut schedule), [0, 1]);
        schedule.is_on_record(0);
        assert_eq!(begun(&mut schedule), [2]);
        schedule.is_on_record(1);
        schedule.is_on_record(2);
        assert_eq!(begun(&mut schedule), [3]);
    }
}
