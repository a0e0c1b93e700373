//! Model stage: `run_model` and `run_model_stream` as one pass over the plugins.

use capstan_protocol::{PluginName, StreamEvent};
use futures::StreamExt as _;
use futures::stream;

use crate::args::RunModelArgs;
use crate::points::{RunModel, RunModelStream};
use crate::{EventStream, HookDecision, HookError, HookRuntime};

/// Calls the plugins by priority; the first that implements either hook and returns a value decides.
///
/// A text becomes a stream of one event. A plugin that implements both hooks is called for its stream first.
pub async fn run_model_stage(
    hooks: &HookRuntime,
    args: &RunModelArgs,
) -> Result<Option<HookDecision<EventStream>>, HookError> {
    let plugins: Vec<PluginName> = hooks.registry().plugins_by_priority().cloned().collect();
    for plugin in plugins {
        if let Some(value) = hooks.call_plugin::<RunModelStream>(&plugin, args).await? {
            return Ok(Some(HookDecision { plugin, value }));
        }
        if let Some(text) = hooks.call_plugin::<RunModel>(&plugin, args).await? {
            let value = stream::iter([StreamEvent::text(text)]).boxed();
            return Ok(Some(HookDecision { plugin, value }));
        }
    }
    Ok(None)
}
