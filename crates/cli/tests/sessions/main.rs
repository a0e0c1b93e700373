//! Sessions: how messages are admitted while a turn is going on, what one session's trouble does to others, how answers
//! are delivered, and what several hosts on one store do to each other.

mod admission;
mod blast_radius;
mod delivery;
mod house;
mod phone;
#[path = "../registers/mod.rs"]
mod registers;
mod stopping;
mod talk;
mod two_hosts;
mod waiting;
