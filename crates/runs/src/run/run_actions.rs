//! Platform actions that a run has requested.

use capstan_protocol::ActionId;

/// Actions of a run: those that are still open, and the names of all that were started.
#[derive(Default)]
pub(crate) struct RunActions {
    pub(crate) open: Vec<(ActionId, String)>,
    /// Names of all started actions, in order.
    pub(crate) started: Vec<String>,
}
