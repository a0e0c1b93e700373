//! Sessions: intake, session actors, leases, the end of turns, and recovery.
//!
//! [`EventIntake`] makes an event durable before its source is acknowledged, and passes it to the actor of its session.
//! A session has one actor while it is active and one turn at a time, under a lease that holds over all processes of a
//! home. The end of a turn (outcomes, entries, outbox rows) is one commit. [`RecoverySweeper`] finds the orphaned work of
//! dead processes, and [`conservation`] checks that no accepted event was lost.
//!
//! [`SessionService`] wires these components. The crate runs turns through [`capstan_runs::Orchestrator`] and sends
//! replies through [`capstan_delivery::Outbox`]; it depends on neither runners nor models.

mod accepted_event;
mod active_sessions;
mod channel_gateway;
mod closing;
pub mod conservation;
mod duplicate_replies;
mod error;
mod intake;
mod intake_policy;
mod lease;
mod lease_keeper;
mod lifecycle;
mod outcome_relay;
mod process_liveness;
mod process_lock_file;
mod recorded_command;
mod recovery;
mod recovery_sweeper;
mod served_event;
mod service;
mod session_actor;
mod split_by_binding;
#[cfg(test)]
mod test_support;
mod unserved_events;

pub use channel_gateway::ChannelGateway;
pub use error::HostError;
pub use intake::{EventIntake, EventResolver, ResolvedEvent};
pub use lease::LeaseOwner;
pub use lifecycle::HostLifecycle;
pub use process_liveness::{OrphanedWork, OverdueRun, ProcessLiveness};
pub use recovery_sweeper::RecoverySweeper;
pub use served_event::{IncomingEvent, ServedEvent};
pub use service::{SessionDependencies, SessionOptions, SessionService};

/// Session whose tape records changes that belong to no conversation, such as changes of bindings.
pub const SYSTEM_SESSION: &str = "system";
