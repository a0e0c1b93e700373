//! The built-in plugin: what Capstan does when nobody replaces it.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_channels::Cli;
use capstan_hooks::contracts::{Channel, ModelProvider};
use capstan_hooks::points::{ProvideChannels, ProvideModelOptions, ProvideTapeStore};
use capstan_hooks::{BoxError, Plugin, Registrar};
use capstan_models::{Demo, OpenAi, openai};
use capstan_store::JsonlTapes;
use capstan_tape::TapeStore;

use crate::builder;
use crate::config::{Config, TapeStoreKind};

/// The built-in plugin. It registers first, and exactly as any other does.
pub(crate) struct Builtin {
    agent: capstan_agent::Options,
    openai: openai::Settings,
    /// Where tapes are kept as files, if they are.
    jsonl: Option<PathBuf>,
    cli: Cli,
}

impl Builtin {
    pub(crate) fn new(config: &Config, cli: Cli) -> Self {
        Self {
            agent: capstan_agent::Options { max_steps: config.max_steps },
            openai: openai::Settings { api_key: config.api_key.clone(), api_base: config.api_base.clone() },
            jsonl: match config.tape_store {
                TapeStoreKind::Sqlite => None,
                TapeStoreKind::Jsonl => Some(builder::tapes_of(&config.home)),
            },
            cli,
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
        let (cli, openai, jsonl) = (self.cli.clone(), self.openai.clone(), self.jsonl.clone());
        hooks
            .on_sync(ProvideChannels, move || Ok(Some(vec![Arc::new(cli.clone()) as Arc<dyn Channel>])))
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
