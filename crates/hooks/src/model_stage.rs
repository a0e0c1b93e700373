//! The model stage: `run_model` and `run_model_stream` as one walk over the plugins.

use capstan_protocol::{PluginName, StreamEvent};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use crate::args::RunModelArgs;
use crate::points::{RunModel, RunModelStream};
use crate::{HookFailure, HookRuntime};

/// What a model stage emits.
pub type EventStream = BoxStream<'static, StreamEvent>;

/// The plugin that decided, and what it decided.
pub struct Decided<T> {
    /// The plugin.
    pub plugin: PluginName,
    /// Its answer.
    pub value: T,
}

impl HookRuntime {
    /// Walks the plugins by priority: the first that implements either hook and returns something decides.
    ///
    /// A text becomes a stream of one event. A plugin that implements both is asked for its stream first.
    pub async fn model_stage(&self, args: &RunModelArgs) -> Result<Option<Decided<EventStream>>, HookFailure> {
        let plugins: Vec<PluginName> = self.registry().running_order().cloned().collect();
        for plugin in plugins {
            if let Some(value) = self.ask::<RunModelStream>(&plugin, args).await? {
                return Ok(Some(Decided { plugin, value }));
            }
            if let Some(text) = self.ask::<RunModel>(&plugin, args).await? {
                let value = stream::iter([StreamEvent::text(text)]).boxed();
                return Ok(Some(Decided { plugin, value }));
            }
        }
        Ok(None)
    }
}
