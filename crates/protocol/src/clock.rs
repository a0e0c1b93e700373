//! Replaceable source of the current time.

use std::fmt;
use std::sync::Arc;

use crate::Timestamp;

/// Source of the current time, replaceable in tests.
///
/// ```
/// use capstan_protocol::{Clock, Timestamp};
///
/// let clock = Clock::new(|| Timestamp::from_millis(1_000));
/// assert_eq!(clock.now(), Timestamp::from_millis(1_000));
/// ```
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// A clock that calls `now` for every reading.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
