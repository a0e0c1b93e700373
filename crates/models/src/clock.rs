//! The clock, as something that can be replaced.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::Timestamp;

/// Tells the time: a provider may say in a date when it wants to be asked again. Tests bring their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock of one's own.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// What time it is.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        let now = (self.0)().as_micros();
        jiff::Timestamp::from_microsecond(now).unwrap_or(jiff::Timestamp::MAX)
    }
}

impl Default for Clock {
    /// The clock of this machine.
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
