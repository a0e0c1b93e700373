//! Policy of a host: which runner serves an event, and with what authority.
//!
//! - [`bindings`] resolves the [`Binding`](capstan_protocol::Binding) of an event, checks bindings before they are saved,
//!   and stores them ([`BindingStore`]).
//! - [`compute_grant`] derives the [`Grant`](capstan_protocol::Grant) of a run from its runner, binding and event.
//! - [`approval`] decides single tool calls by the approval rules of a grant.
//! - [`check_attachments`] checks the addresses of the attachments of remote events.
//! - [`Budget`] counts steps and tokens of a run and its child runs.
//!
//! Everything except [`BindingStore`] is a pure function or value. Nothing here runs anything or knows sessions, hooks or
//! channels: the callers apply what is decided here.

pub mod approval;
mod attachment;
pub mod bindings;
mod budget;
mod grant;

pub use attachment::{AttachmentError, check_attachments};
pub use bindings::{BindingError, BindingStore, default_binding};
pub use budget::{Budget, BudgetExhausted};
pub use grant::{EventScope, compute_grant, restrict_grant};
