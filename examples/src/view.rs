//! Replaces the view: the part of a tape that a model reads. The tape itself is unchanged.
//!
//! A view may summarise, retrieve or omit. Its messages are made valid for the provider before they are sent, so it
//! need not care about splitting a call from its result.

use std::sync::Arc;

use capstan::hooks::points::BuildTapeContext;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::ChatMessage;
use capstan::tape::{ContextWindow, DefaultView, EntryKind, View};

/// View with only the newest messages.
#[derive(Clone, Copy)]
pub struct ShortMemory {
    /// Number of messages.
    pub messages: usize,
}

impl Plugin for ShortMemory {
    fn name(&self) -> &'static str {
        "short-memory"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let view = *self;
        hooks.on_sync(BuildTapeContext, move || Ok(Some(Arc::new(view) as Arc<dyn View>)));
        Ok(())
    }
}

impl View for ShortMemory {
    fn messages(&self, window: &ContextWindow) -> Vec<ChatMessage> {
        let mut all = DefaultView.messages(window);
        all.split_off(all.len().saturating_sub(self.messages))
    }

    fn kinds(&self) -> &[EntryKind] {
        DefaultView.kinds()
    }
}
