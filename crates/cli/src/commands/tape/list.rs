//! `capstan tape list`.

use capstan_tape::{ForkState, TapeRecord};

use super::super::{plain, print_json, print_lines};
use super::source::Scope;
use crate::Failure;

pub(super) async fn list(scope: &Scope<'_>, json: bool) -> Result<(), Failure> {
    let records = scope.tapes()?.list().await?;
    if json {
        return print_json(&records);
    }
    print_lines(records.iter().map(|record| plain(&line(record))))
}

/// The name, the newest entry, and whose it is.
fn line(record: &TapeRecord) -> String {
    let whose = match (&record.fork, &record.session, &record.workspace) {
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
    format!("{:34}  {:>9}  {whose}", record.name.as_str(), format!("#{}", record.head))
}
