//! Sessions: how messages are admitted while a turn is going on, what one session's trouble does to others, how answers
//! are delivered, and what several hosts on one store do to each other.

mod acceptance;
mod acting;
mod admission;
mod authority;
mod backpressure;
mod beside;
mod blast_radius;
mod delivery;
mod delivery_policy;
mod frail;
mod full_queue;
mod house;
mod left;
mod left_queries;
mod notices;
mod phone;
#[path = "../platform/mod.rs"]
mod platform;
#[path = "../registers/mod.rs"]
mod registers;
mod stop_deadline;
mod stopping;
mod talk;
mod trouble;
mod two_hosts;
mod waiting;
