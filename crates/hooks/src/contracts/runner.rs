//! Contract of runners, which serve events.

use capstan_protocol::{Descriptor, RunContext, RunResult};
use futures::stream::BoxStream;

use super::RunApi;

/// Results of a runner, in order. The last one is `run.completed` or `run.failed`.
pub type ResultStream = BoxStream<'static, RunResult>;

/// Agent of any kind: receives an event and access to the run API, and yields results.
pub trait Runner: Send + Sync + 'static {
    /// Id, capabilities and required permissions.
    fn descriptor(&self) -> Descriptor;

    /// Serves one event. The host journals the results; dropping the stream ends the run.
    fn run(&self, context: RunContext, api: RunApi) -> ResultStream;
}
