//! Replaces the rendering: the plugin writes what is sent, from the model output.
//!
//! It may give several messages, or [`Rendered::Silent`] for none at all.

use capstan::hooks::args::ModelText;
use capstan::hooks::points::{RenderOutbound, Rendered};
use capstan::hooks::{BoxError, Inbound, Plugin, Registrar};
use capstan::protocol::{Outbound, SessionId};

/// Signs every reply.
pub struct Signature(pub &'static str);

impl Plugin for Signature {
    fn name(&self) -> &'static str {
        "signature"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        let signature = self.0;
        hooks.on(RenderOutbound, move |message: Inbound, session: SessionId, output: ModelText| async move {
            let text = format!("{}\n-- {signature}", &*output);
            Ok(Some(Rendered::Messages(vec![Outbound::reply_to(&message, session, text)])))
        });
        Ok(())
    }
}
