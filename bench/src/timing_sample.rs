//! Timing samples and their statistics.

use std::time::Duration;

/// Measured times of one subject.
#[derive(Default)]
pub(crate) struct TimingSample(Vec<Duration>);

impl TimingSample {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns the quantile of the times.
    fn quantile(&self, part: f64) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let index = (part * times.len().saturating_sub(1) as f64).round() as usize;
        times.get(index).copied().unwrap_or_default()
    }

    /// Returns a quantile in milliseconds.
    pub(crate) fn millis(&self, part: f64) -> f64 {
        micros(self.quantile(part)) / 1000.0
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the longest time, in milliseconds.
    pub(crate) fn max_millis(&self) -> f64 {
        micros(self.quantile(1.0)) / 1000.0
    }

    /// Formats the median with the first and third quartile.
    pub(crate) fn summary(&self) -> String {
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|part| micros(self.quantile(part)));
        format!("{middle:>10.1} µs  ({low:.1} to {high:.1}, n = {})", self.0.len())
    }

    /// Returns the ratio of the medians.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        micros(self.median()) / micros(other.median())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Prints a row of a table.
pub(crate) fn print_row(name: &str, sample: &TimingSample) {
    println!("  {name:34} {}", sample.summary());
}

/// Prints a ratio with its target, if it has one.
pub(crate) fn print_ratio(name: &str, ratio: f64, target: Option<f64>) {
    let verdict = match target {
        None => String::new(),
        Some(target) if ratio <= target => format!("  (target: at most {target}, met)"),
        Some(target) => format!("  (target: at most {target}, MISSED)"),
    };
    println!("  {name:34} {ratio:>10.2} x{verdict}");
}
