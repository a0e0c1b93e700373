//! Plugin processes: scripted programs against the host's side of the protocol.

mod channels;
mod hooks;
mod manifests;
mod processes;
mod runners;
mod support;
mod tools;
