//! Gateway of one channel, which stamps the origin of its events.

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Gateway, IntakeError};
use capstan_protocol::EventOrigin;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::{HostError, IncomingEvent, SessionService};

/// Gateway of one channel. Every event gets the origin that the host assigned to the channel, whatever the event says.
pub struct ChannelGateway {
    sessions: SessionService,
    origin: EventOrigin,
}

impl ChannelGateway {
    /// Gateway to these sessions for a channel of this origin.
    pub fn new(sessions: SessionService, origin: EventOrigin) -> Self {
        Self { sessions, origin }
    }
}

impl Gateway for ChannelGateway {
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>> {
        let refused = |error: HostError| IntakeError { code: error.code(), message: error.to_string() };
        let incoming = IncomingEvent { origin: self.origin, ..event.into() };
        let accepted = self.sessions.intake().accept_in_order(incoming, None);
        accepted.map(move |accepted| accepted.map_err(refused)).boxed()
    }
}
