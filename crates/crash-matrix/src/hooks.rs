//! What the plugin of a host to be killed registers.

use std::sync::Arc;

use capstan::hooks::args::Prompt;
use capstan::hooks::contracts::Channel;
use capstan::hooks::points::{
    Admission, AdmitMessage, LoadState, ProvideChannels, ProvideRunners, ProvideTools, RenderOutbound, Rendered,
    RunModel,
};
use capstan::hooks::{BoxError, Inbound, Plugin, Registrar};
use capstan::protocol::AdmissionMode;
use serde_json::Value;

use crate::channel::Line;
use crate::keeper::Keeper;
use crate::place::Place;
use crate::tools::{self, wait_at};

/// The key of an event's metadata that says how it is admitted.
pub const ADMISSION: &str = "admission";
/// The key of an event's metadata that names a gate which its turn waits at before anything else.
pub const WAITS_AT: &str = "waits_at";
/// What a message says that is to have no reply.
pub const HUSH: &str = "[hush]";

/// The plugin of a host to be killed.
pub struct Crash {
    /// Where the outside is.
    pub place: Place,
    /// Whether it answers in place of the agent, with effects that the host does not see.
    pub stands_in: bool,
}

impl Plugin for Crash {
    fn name(&self) -> &'static str {
        "crash"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        let place = self.place.clone();
        hooks.on_sync(ProvideChannels, move || {
            let lines = [Line::wire(place.clone()), Line::desk(place.clone())];
            Ok(Some(lines.map(|line| Arc::new(line) as Arc<dyn Channel>).into()))
        });
        let place = self.place.clone();
        hooks.on_sync(ProvideTools, move || Ok(Some(tools::all(&place))));
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Keeper::runner()])));
        hooks.on(AdmitMessage, |message: Inbound| async move {
            let mode = message.metadata.get(ADMISSION).cloned();
            let mode = mode.and_then(|mode| serde_json::from_value::<AdmissionMode>(mode).ok());
            Ok(mode.map(Admission::As))
        });
        let place = self.place.clone();
        hooks.on(LoadState, move |message: Inbound| {
            let place = place.clone();
            async move {
                if let Some(key) = message.metadata.get(WAITS_AT).and_then(Value::as_str) {
                    wait_at(&place, key).await;
                }
                Ok(None)
            }
        });
        hooks.on(RenderOutbound, |message: Inbound| async move {
            Ok(message.input.plain_text().contains(HUSH).then_some(Rendered::Silent))
        });
        if self.stands_in {
            let place = self.place.clone();
            hooks.on(RunModel, move |prompt: Prompt| stand_in(place.clone(), prompt.text()));
        }
        Ok(())
    }
}

/// Does what the prompt asks for with `[own KEY]` and `[own-watch KEY]`, without the host.
async fn stand_in(place: Place, prompt: String) -> Result<Option<String>, BoxError> {
    let mut done = false;
    for task in prompt.split('[').filter_map(|text| text.split_once(']')).map(|(task, _)| task) {
        match task.split_once(' ') {
            Some(("own", key)) => place.execute("own", key)?,
            Some(("own-watch", key)) => {
                place.execute("own", key)?;
                wait_at(&place, key).await;
            }
            _ => continue,
        }
        done = true;
    }
    Ok(done.then(|| format!("Done by myself: {prompt}")))
}
