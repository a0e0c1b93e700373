//! The built-in plugin: what Capstan does when nobody replaces it.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_channels::{Stdio, stdio};
use capstan_hooks::contracts::{Channel, ModelProvider};
use capstan_hooks::points::{ProvideChannels, ProvideModelOptions, ProvideTapeStore};
use capstan_hooks::{BoxError, Plugin, Registrar};
use capstan_models::{Demo, OpenAi, openai};
use capstan_store::JsonlTapes;
use capstan_tape::TapeStore;

use crate::builder;
use crate::config::{Config, TapeStoreKind};
use crate::failure;

/// The built-in plugin. It registers first, and exactly as any other does.
pub(crate) struct Builtin {
    agent: capstan_agent::Options,
    openai: openai::Settings,
    /// Where tapes are kept as files, if they are.
    jsonl: Option<PathBuf>,
    terminal: Arc<dyn Channel>,
    stdio: Stdio,
}

/// What the text of a message may grow to when it is escaped: six bytes for one.
const ESCAPED: usize = 6;
/// What a line may have beside the text of its message.
const BESIDE_TEXT: usize = 64 * 1024;

impl Builtin {
    pub(crate) fn new(config: &Config, terminal: Arc<dyn Channel>) -> Self {
        Self {
            agent: capstan_agent::Options { max_steps: config.max_steps },
            openai: openai::Settings { api_key: config.api_key.clone(), api_base: config.api_base.clone() },
            jsonl: match config.tape_store {
                TapeStoreKind::Sqlite => None,
                TapeStoreKind::Jsonl => Some(builder::tapes_of(&config.home)),
            },
            terminal,
            stdio: Stdio::new(
                stdio::Streams::standard(),
                stdio::Options {
                    max_line_bytes: config.max_message_bytes.saturating_mul(ESCAPED).saturating_add(BESIDE_TEXT),
                    hint: failure::hint,
                },
            ),
        }
    }
}

impl Plugin for Builtin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        capstan_host::builtin::register(hooks);
        capstan_agent::register(hooks, self.agent);
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::clone(&self.terminal), Arc::new(self.stdio.clone())];
        let (openai, jsonl) = (self.openai.clone(), self.jsonl.clone());
        hooks
            .on_sync(ProvideChannels, move || Ok(Some(channels.clone())))
            .on_sync(ProvideModelOptions, move || {
                let openai = OpenAi::new(openai.clone());
                Ok(Some(vec![Arc::new(Demo) as Arc<dyn ModelProvider>, Arc::new(openai)]))
            })
            .on_sync(ProvideTapeStore, move || {
                let Some(folder) = &jsonl else { return Ok(None) };
                Ok(Some(Arc::new(JsonlTapes::open(folder)?) as Arc<dyn TapeStore>))
            });
        Ok(())
    }
}
