//! The wires of the providers against scripted servers.

mod common;
mod keys;
mod limits;
mod openai;
mod provider_rules;
mod providers;
mod request_bodies;
mod rerank;
mod retries;
