//! Waiting for a process to come to a certain point.

use std::time::Duration;

use capstan_testing::Gate;

/// No assertion: it only ends a test that would hang.
const TOO_LONG: Duration = Duration::from_mins(2);

/// Waits until an answer of the model stands at the gate.
pub fn wait_for(gate: &Gate) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let reached = runtime.block_on(async { tokio::time::timeout(TOO_LONG, gate.reached()).await });
    reached.expect("an answer comes to the gate");
}
