//! Runners: whoever serves an event.

use capstan_protocol::{Descriptor, RunContext, RunResult};
use futures::stream::BoxStream;

use super::RunApi;

/// What a runner yields, in order. It ends with `run.completed` or `run.failed`.
pub type ResultStream = BoxStream<'static, RunResult>;

/// An agent of any kind: it is given an event and a door to the host, and yields results.
pub trait Runner: Send + Sync + 'static {
    /// What it is and what it needs.
    fn descriptor(&self) -> Descriptor;

    /// Serves one event. The host journals what it yields; dropping the stream ends the run.
    fn run(&self, context: RunContext, api: RunApi) -> ResultStream;
}
