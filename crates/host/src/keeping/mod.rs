//! What runners keep in the host, as whoever runs it sees and changes it.
//!
//! Runners write their [spaces](Space) through the run API. [`Spaces`] is the other way in: it shows them, changes them,
//! and clears what nobody uses any more (see [`unused`]). What it changes stands on the workspace's system tape.

mod book;
mod error;
mod place;
mod space;
mod unused;

pub use book::{Held, Spaces};
pub use error::KeepingError;
pub(crate) use place::Place;
pub use space::Space;
pub use unused::{Unused, Users, limits_of, unused};

/// How long a key may be.
pub(crate) const LONGEST_KEY: usize = 256;
