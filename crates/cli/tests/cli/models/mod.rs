//! Models as a user sees them: every provider through the real binary, against a server that speaks the
//! provider's own protocol and enforces its rules.

mod fallbacks;
mod keys;
mod model_errors;
mod provider;
mod same_tape;
mod switching;
