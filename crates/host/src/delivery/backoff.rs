//! How long to wait before something is tried again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Waits that are twice as long each time, and never end for everybody at the same moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryBackoff {
    /// The first wait, without jitter.
    pub(crate) initial_delay: Duration,
    /// The longest one, without jitter.
    pub(crate) max_delay: Duration,
}

impl RetryBackoff {
    /// How long to wait after so many attempts, of which there was at least one.
    pub(crate) fn delay_after(self, attempts: u32) -> Duration {
        let doubled =
            self.initial_delay.saturating_mul(1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX));
        // A new state is seeded at random.
        let jitter = u32::try_from(RandomState::new().build_hasher().finish() % 1000).unwrap_or_default();
        doubled.min(self.max_delay) * (500 + jitter) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::RetryBackoff;
    use std::time::Duration;

    #[test]
    fn x03_the_wait_doubles_with_jitter_and_has_an_end() {
        let backoff = RetryBackoff { initial_delay: Duration::from_secs(1), max_delay: Duration::from_mins(5) };
        for _ in 0..100 {
            let within = |attempts, seconds: f64| {
                let waited = backoff.delay_after(attempts).as_secs_f64();
                assert!((seconds * 0.5..=seconds * 1.5).contains(&waited), "{attempts}: {waited}");
            };
            within(1, 1.0);
            within(2, 2.0);
            within(5, 16.0);
            within(300, 300.0);
            within(u32::MAX, 300.0);
        }
    }
}
