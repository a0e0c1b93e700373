//! Exponential backoff between attempts.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Exponential backoff: the delay doubles with every attempt up to a maximum.
///
/// ```
/// use std::time::Duration;
/// use capstan_protocol::RetryBackoff;
///
/// let backoff = RetryBackoff { initial_delay: Duration::from_secs(1), max_delay: Duration::from_secs(5) };
/// let delays: Vec<u64> = (1..=4).map(|attempts| backoff.base_delay(attempts).as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 5]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBackoff {
    /// Delay after the first attempt, without jitter.
    pub initial_delay: Duration,
    /// Longest delay, without jitter.
    pub max_delay: Duration,
}

impl RetryBackoff {
    /// Delay after `attempts` attempts, at least one, without jitter.
    pub fn base_delay(self, attempts: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        self.initial_delay.saturating_mul(factor).min(self.max_delay)
    }

    /// Delay after `attempts` attempts with a jitter of 50 % up or down, so that many clients do not retry at the same
    /// moment.
    pub fn delay_after(self, attempts: u32) -> Duration {
        let base = self.base_delay(attempts);
        (base / 2).saturating_add(base.mul_f64(Self::random_fraction()))
    }

    /// Random number from 0 to 1 for jitter, not for secrets: the hash keys of a new [`RandomState`] are random.
    pub fn random_fraction() -> f64 {
        let random = RandomState::new().build_hasher().finish();
        f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::RetryBackoff;
    use std::time::Duration;

    #[test]
    fn x03_delay_doubles_with_jitter_up_to_a_maximum() {
        let backoff = RetryBackoff { initial_delay: Duration::from_secs(1), max_delay: Duration::from_mins(5) };
        for _ in 0..100 {
            let within = |attempts, seconds: f64| {
                let delay = backoff.delay_after(attempts).as_secs_f64();
                assert!((seconds * 0.5..=seconds * 1.5).contains(&delay), "{attempts}: {delay}");
            };
            within(1, 1.0);
            within(2, 2.0);
            within(5, 16.0);
            within(300, 300.0);
            within(u32::MAX, 300.0);
        }
    }

    #[test]
    fn x03_jitter_is_random_and_between_zero_and_one() {
        let fractions: Vec<f64> = (0..50).map(|_| RetryBackoff::random_fraction()).collect();
        assert!(fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction)), "{fractions:?}");
        assert!(fractions.windows(2).any(|pair| pair[0].total_cmp(&pair[1]).is_ne()), "{fractions:?}");
    }
}
