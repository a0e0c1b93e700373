//! Views, queries and events of tapes.

mod p07_default_view;
mod p10_queries;
mod p12_two_writers;
mod p13_views;
mod support;
mod tape_events;
