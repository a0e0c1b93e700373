//! Models in a host of this process: what the command line cannot set or show.

mod fallbacks;
mod model_errors;
mod overflow_handoff;
mod same_tape;
