//! What a run that a crash cut off had done on the platform.

use std::collections::HashMap;

use capstan_protocol::{ActionId, RunId};
use capstan_tape::{Draft, Entry, Kind, RunRecord};

use super::{BY_CHILD, ENDED, End, STARTED, ended};

/// What a run had done on the platform, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acted {
    /// What had begun, and nobody saw its end.
    open: Vec<(ActionId, String)>,
    /// What had ended, whichever way.
    pub(crate) ended: Vec<String>,
}

impl Acted {
    /// What nobody saw the end of.
    pub(crate) fn open(&self) -> impl Iterator<Item = &str> {
        self.open.iter().map(|(_, action)| action.as_str())
    }

    /// The entries that say that nobody knows.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = Draft> {
        let end = || End::Unknown("the host ended before the channel had answered".to_owned());
        self.open.iter().map(move |(id, action)| ended(id, action, &end()))
    }
}

/// What a run and its children were doing on the platform, and what they had done.
pub(crate) fn of_family(
    run: &RunRecord,
    runs: &[RunRecord],
    acted: &HashMap<RunId, Acted>,
) -> (Vec<String>, Vec<String>) {
    let mut family = vec![&run.run_id];
    // A parent has the older id, but nobody promised the order.
    while let Some(child) = runs.iter().find(|child| {
        child.parent.as_ref().is_some_and(|parent| family.contains(&parent)) && !family.contains(&&child.run_id)
    }) {
        family.push(&child.run_id);
    }
    let did = || family.iter().filter_map(|run| acted.get(*run));
    let mut open: Vec<String> = did().flat_map(|did| did.open().map(str::to_owned)).collect();
    let mut done: Vec<String> = did().flat_map(|did| did.ended.iter().cloned()).collect();
    open.dedup();
    done.dedup();
    (open, done)
}

/// What the entries of a run tell of its actions.
pub(crate) fn acted(run_id: &RunId, entries: &[Entry]) -> Acted {
    let mut acted = Acted::default();
    let of_run = entries.iter().filter(|entry| entry.kind == Kind::Event && entry.run_id() == Some(run_id.as_str()));
    for entry in of_run {
        let data = &entry.payload["data"];
        let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
        match entry.name() {
            Some(STARTED) => acted.open.push((ActionId::new(text("action_id")), text("action"))),
            Some(ENDED) => {
                let id = text("action_id");
                acted.open.retain(|(open, _)| open.as_str() != id);
                acted.ended.push(text("action"));
            }
            Some(BY_CHILD) => {
                let actions = data["actions"].as_array().into_iter().flatten();
                acted.ended.extend(actions.filter_map(|action| action.as_str().map(str::to_owned)));
            }
            _ => {}
        }
    }
    acted
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ActionId, EntryId, RunId, Timestamp};
    use capstan_tape::Draft;
    use serde_json::json;

    use super::super::{BY_CHILD, ENDED, STARTED};
    use super::acted;

    #[test]
    fn x02_an_action_is_open_until_its_end_is_told() {
        let run = RunId::new("r");
        let told = |name, data| Draft::event(name, data).of_run(&run);
        let drafts = [
            told(STARTED, json!({"action_id": "r.1", "action": "a"})),
            told(STARTED, json!({"action_id": "r.2", "action": "b"})),
            told(ENDED, json!({"action_id": "r.1", "action": "a", "status": "done"})),
            Draft::event(STARTED, json!({"action_id": "x.1", "action": "another's"})).of_run(&RunId::new("x")),
            told(BY_CHILD, json!({"run_id": "c", "actions": ["c"]})),
        ];
        let entries: Vec<_> = drafts
            .into_iter()
            .enumerate()
            .map(|(at, draft)| draft.into_entry(EntryId(at as u64 + 1), Timestamp::from_millis(0), &[]))
            .collect();
        let found = acted(&run, &entries);
        assert_eq!(found.open, [(ActionId::new("r.2"), "b".to_owned())]);
        assert_eq!(found.ended, ["a", "c"]);
        assert_eq!(found.unknown().count(), 1);
    }
}
