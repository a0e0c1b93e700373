//! The test support itself.

mod protocols;
mod scripted_model;
