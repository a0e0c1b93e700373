//! Times, and what is said about them.

use std::time::Duration;

/// The times of one thing.
#[derive(Default)]
pub(crate) struct TimingSample(Vec<Duration>);

impl TimingSample {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The value below which this part of the times lies.
    fn quantile(&self, part: f64) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = (part * times.len().saturating_sub(1) as f64).round() as usize;
        times.get(place).copied().unwrap_or_default()
    }

    /// A quantile in milliseconds.
    pub(crate) fn millis(&self, part: f64) -> f64 {
        micros(self.quantile(part)) / 1000.0
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// The longest, in milliseconds.
    pub(crate) fn max_millis(&self) -> f64 {
        micros(self.quantile(1.0)) / 1000.0
    }

    /// The median, between the quarters it lies in the middle of.
    pub(crate) fn summary(&self) -> String {
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|part| micros(self.quantile(part)));
        format!("{middle:>10.1} µs  ({low:.1} to {high:.1}, n = {})", self.0.len())
    }

    /// How many times as long as another, by the medians.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        micros(self.median()) / micros(other.median())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A line of a table.
pub(crate) fn print_row(name: &str, sample: &TimingSample) {
    println!("  {name:34} {}", sample.summary());
}

/// A ratio with its target, if it has one.
pub(crate) fn print_ratio(name: &str, ratio: f64, target: Option<f64>) {
    let judged = match target {
        None => String::new(),
        Some(target) if ratio <= target => format!("  (target: at most {target}, met)"),
        Some(target) => format!("  (target: at most {target}, MISSED)"),
    };
    println!("  {name:34} {ratio:>10.2} x{judged}");
}
