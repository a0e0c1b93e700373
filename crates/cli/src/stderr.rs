//! What is said on the standard error. Nobody may be there to hear it, which is no reason to fail.

use std::fmt::Arguments;
use std::io::Write as _;

use capstan_channels::SharedTty;
use capstan_channels::chat::strip_escapes;

/// Says a line on the standard error, as `eprintln!` does, which panics where nobody listens or the disk is full.
macro_rules! stderr_line {
    () => { $crate::stderr::write(format_args!("\n")) };
    ($($told:tt)*) => { $crate::stderr::write(format_args!("{}\n", format_args!($($told)*))) };
}

/// Says something on the standard error without ending the line.
macro_rules! stderr_prompt {
    ($($told:tt)*) => { $crate::stderr::write(format_args!($($told)*)) };
}

pub(crate) fn write(told: Arguments<'_>) {
    // What is told may be in the words of a provider, a plugin or a file, which must not drive the terminal.
    let told = strip_escapes(&told.to_string());
    // In one piece, so that lines of several threads do not mix.
    let _unheard = SharedTty::standard().note_writer(std::io::stderr()).write_all(told.as_bytes());
}
