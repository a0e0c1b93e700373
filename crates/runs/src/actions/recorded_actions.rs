//! Platform actions of an interrupted run, as read from its tape.

use std::collections::HashMap;
use std::hash::BuildHasher;

use capstan_protocol::{ActionId, RunId};
use capstan_tape::{ActionEnd, Entry, EntryDraft, RunRecord, TapeEvent};

use super::action_ended_entry;

/// Recorded actions of a run, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecordedActions {
    /// Actions that started and have no recorded end.
    open: Vec<(ActionId, String)>,
    /// Actions that ended, successfully or not.
    pub ended: Vec<String>,
}

impl RecordedActions {
    /// Names of the actions without a recorded end.
    pub fn open(&self) -> impl Iterator<Item = &str> {
        self.open.iter().map(|(_, action)| action.as_str())
    }

    /// Entries that record the end of the open actions as unknown.
    pub fn unknown_end_entries(&self) -> impl Iterator<Item = EntryDraft> {
        let end = || ActionEnd::Unknown { reason: "the host ended before the channel had answered".to_owned() };
        self.open.iter().map(move |(id, action)| action_ended_entry(id.clone(), action.clone(), end()))
    }
}

/// Names of the open and of the ended actions of a run and its child runs.
pub fn collect_family_actions<S: BuildHasher>(
    run: &RunRecord,
    runs: &[RunRecord],
    recorded_by_run: &HashMap<RunId, RecordedActions, S>,
) -> (Vec<String>, Vec<String>) {
    let mut family = vec![&run.run_id];
    // A parent has the older id, but the order of `runs` is not guaranteed.
    while let Some(child) = runs.iter().find(|child| {
        child.parent.as_ref().is_some_and(|parent| family.contains(&parent)) && !family.contains(&&child.run_id)
    }) {
        family.push(&child.run_id);
    }
    let recorded = || family.iter().filter_map(|run| recorded_by_run.get(*run));
    let mut open: Vec<String> = recorded().flat_map(|actions| actions.open().map(str::to_owned)).collect();
    let mut ended: Vec<String> = recorded().flat_map(|actions| actions.ended.iter().cloned()).collect();
    open.dedup();
    ended.dedup();
    (open, ended)
}

/// Reads the actions of a run from the entries of its tape.
pub fn read_recorded_actions(run_id: &RunId, entries: &[Entry]) -> RecordedActions {
    let mut actions = RecordedActions::default();
    let run_entries = entries.iter().filter(|entry| entry.run_id() == Some(run_id.as_str()));
    for event in run_entries.filter_map(TapeEvent::from_entry) {
        match event {
            TapeEvent::ActionStarted(start) => actions.open.push((start.action_id, start.action)),
            TapeEvent::ActionEnded(ended) => {
                actions.open.retain(|(open, _)| *open != ended.action_id);
                actions.ended.push(ended.action);
            }
            TapeEvent::ActionByChild(child) => actions.ended.extend(child.actions),
            _ => {}
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ActionId, EntryId, RunId, Timestamp};
    use capstan_tape::EntryDraft;
    use serde_json::json;

    use super::read_recorded_actions;

    #[test]
    fn x02_an_action_is_open_until_its_end_is_recorded() {
        let run = RunId::new("r");
        let entry = |name, data| EntryDraft::event(name, data).with_run_id(&run);
        let drafts = [
            entry("action.started", json!({"action_id": "r.1", "action": "a", "channel": "c"})),
            entry("action.started", json!({"action_id": "r.2", "action": "b", "channel": "c"})),
            entry("action.ended", json!({"action_id": "r.1", "action": "a", "status": "done"})),
            EntryDraft::event("action.started", json!({"action_id": "x.1", "action": "another's", "channel": "c"}))
                .with_run_id(&RunId::new("x")),
            entry("action.by_child", json!({"run_id": "c", "actions": ["c"]})),
        ];
        let entries: Vec<_> = drafts
            .into_iter()
            .enumerate()
            .map(|(position, draft)| draft.into_entry(EntryId(position as u64 + 1), Timestamp::from_millis(0), &[]))
            .collect();
        let actions = read_recorded_actions(&run, &entries);
        assert_eq!(actions.open, [(ActionId::new("r.2"), "b".to_owned())]);
        assert_eq!(actions.ended, ["a", "c"]);
        assert_eq!(actions.unknown_end_entries().count(), 1);
    }
}
