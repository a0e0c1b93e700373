//! Platform actions that a run has requested.

use capstan_protocol::ActionId;

/// The actions of a run that have begun and not ended, and how many there were.
#[derive(Default)]
pub(crate) struct RunActions {
    pub(crate) open: Vec<(ActionId, String)>,
    /// What was asked for, by name.
    pub(crate) started: Vec<String>,
}
