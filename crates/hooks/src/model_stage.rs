//! The model stage: `run_model` and `run_model_stream` as one walk over the plugins.

use capstan_protocol::{PluginName, StreamEvent};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use crate::args::RunModelArgs;
use crate::points::{RunModel, RunModelStream};
use crate::{HookError, HookRuntime};

/// What a model stage emits.
pub type EventStream = BoxStream<'static, StreamEvent>;

/// The plugin that decided, and what it decided.
pub struct HookDecision<T> {
    /// The plugin.
    pub plugin: PluginName,
    /// Its answer.
    pub value: T,
}

impl HookRuntime {
    /// Walks the plugins by priority: the first that implements either hook and returns something decides.
    ///
    /// A text becomes a stream of one event. A plugin that implements both is asked for its stream first.
    pub async fn run_model_stage(&self, args: &RunModelArgs) -> Result<Option<HookDecision<EventStream>>, HookError> {
        let plugins: Vec<PluginName> = self.registry().plugins_in_call_order().cloned().collect();
        for plugin in plugins {
            if let Some(value) = self.call_plugin::<RunModelStream>(&plugin, args).await? {
                return Ok(Some(HookDecision { plugin, value }));
            }
            if let Some(text) = self.call_plugin::<RunModel>(&plugin, args).await? {
                let value = stream::iter([StreamEvent::text(text)]).boxed();
                return Ok(Some(HookDecision { plugin, value }));
            }
        }
        Ok(None)
    }
}
