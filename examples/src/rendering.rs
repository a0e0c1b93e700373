//! Replaces the rendering: the plugin writes what is sent, from the model output.
//!
//! It may give several messages, or [`Rendered::Silent`] for none at all.

use capstan::hooks::args::ModelText;
use capstan::hooks::points::{RenderOutbound, RenderedOutbound};
use capstan::hooks::{BoxError, HookRegistrar, InboundEvent, Plugin};
use capstan::protocol::{OutboundMessage, SessionId};

/// Signs every reply.
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
