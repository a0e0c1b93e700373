//! The clock, as something that can be replaced.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::Timestamp;

/// Tells the time. Tests bring their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// A clock of one's own.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
