//! `capstan tape list`.

use capstan_tape::{ForkState, TapeRecord};

use super::super::{print_json, print_lines, replace_control_chars};
use super::source::HomeTapes;
use crate::CommandError;

pub(super) async fn list_tapes(home: &HomeTapes<'_>, json: bool) -> Result<(), CommandError> {
    let records = home.tapes()?.list().await?;
    if json {
        return print_json(&records);
    }
    print_lines(records.iter().map(|record| replace_control_chars(&format_tape(record))))
}

/// Name, head, and session or parent of a tape.
fn format_tape(record: &TapeRecord) -> String {
    let owner = match (&record.fork, &record.session, &record.workspace) {
        (Some(fork), _, _) => {
            let state = match fork.state {
                ForkState::Open => "",
                ForkState::Merged => ", merged",
                ForkState::Discarded => ", discarded",
            };
            format!("fork of {} at #{}{state}", fork.parent, fork.position)
        }
        (None, Some(session), Some(workspace)) => format!("{session}  {workspace}"),
        (None, _, _) => "-".to_owned(),
    };
    format!("{:34}  {:>9}  {owner}", record.name.as_str(), format!("#{}", record.head))
}
