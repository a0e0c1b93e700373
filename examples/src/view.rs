//! Replaces the view: what a model gets to read of a tape. The tape itself stays whole.
//!
//! A view may summarise, retrieve or leave out. What it gives is made valid for the provider before it is sent, so it
//! need not care whether it cuts between a call and its result.

use std::sync::Arc;

use capstan::hooks::points::BuildTapeContext;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::ChatMessage;
use capstan::tape::{ContextWindow, DefaultView, EntryKind, View};

/// Shows only the newest messages.
#[derive(Clone, Copy)]
pub struct ShortMemory {
    /// How many.
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
