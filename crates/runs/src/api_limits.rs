//! Limits of the run API.

/// Limits of one run's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiLimits {
    /// Calls per second; as many may come at once.
    pub calls_per_second: u32,
    /// Calls served at the same time.
    pub in_flight: u32,
    /// Size of a request, in bytes.
    pub payload_bytes: u64,
    /// Size of a request that carries contents, in bytes: requests to models, files, messages.
    pub content_bytes: u64,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self { calls_per_second: 1_000, in_flight: 64, payload_bytes: 1024 * 1024, content_bytes: 64 * 1024 * 1024 }
    }
}
