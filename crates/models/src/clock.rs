//! Injectable clock.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::Timestamp;

/// Source of the current time, replaceable in tests. Dates in `retry-after` headers are compared with it.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Creates a clock that calls `now`.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Current time.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        let now = (self.0)().as_micros();
        jiff::Timestamp::from_microsecond(now).unwrap_or(jiff::Timestamp::MAX)
    }
}

impl Default for Clock {
    /// Clock of this machine.
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
