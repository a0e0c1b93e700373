//! Reproducible random numbers.

/// Pseudo-random sequence that is the same for the same seed.
pub struct SeededRng(u64);

impl SeededRng {
    /// Sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns true with a probability of `percent`.
    pub(super) fn roll_percent(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }

    /// Picks one of several values.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.next_u64().to_ne_bytes()[0]) % choices.len()]
    }

    /// Number from zero to below `limit`.
    pub fn next_below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit.max(1)
    }

    /// `SplitMix64`: every seed, including 0, gives a good sequence.
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
