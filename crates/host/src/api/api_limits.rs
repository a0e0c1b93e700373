//! How much a run may ask of the host.

/// How much a run may ask of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiLimits {
    /// How many calls a second; as many may come at once.
    pub calls_per_second: u32,
    /// How many calls are served at the same time.
    pub in_flight: u32,
    /// How large what a call brings may be, in bytes.
    pub payload_bytes: u64,
    /// The same for calls that hand contents over: requests to models, files, messages.
    pub content_bytes: u64,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self { calls_per_second: 1_000, in_flight: 64, payload_bytes: 1024 * 1024, content_bytes: 64 * 1024 * 1024 }
    }
}
