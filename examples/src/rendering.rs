//! Replaces the rendering: the plugin writes the outgoing messages from the model output.
//!
//! A plugin may return several messages, or [`RenderedOutbound::Silent`] for none at all.

use capstan::hooks::args::ModelText;
use capstan::hooks::points::{RenderOutbound, RenderedOutbound};
use capstan::hooks::{BoxError, HookRegistrar, InboundEvent, Plugin};
use capstan::protocol::{OutboundMessage, SessionId};

/// Plugin that signs every reply.
pub struct SignaturePlugin(pub &'static str);

impl Plugin for SignaturePlugin {
    fn name(&self) -> &'static str {
        "signature"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let signature = self.0;
        hooks.on(RenderOutbound, move |message: InboundEvent, session: SessionId, output: ModelText| async move {
            let text = format!("{}\n-- {signature}", &*output);
            Ok(Some(RenderedOutbound::Messages(vec![OutboundMessage::reply_to(&message, session, text)])))
        });
        Ok(())
    }
}
