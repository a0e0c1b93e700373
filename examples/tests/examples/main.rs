//! The examples, run as a reader would run them.

mod examples;
mod runners;
