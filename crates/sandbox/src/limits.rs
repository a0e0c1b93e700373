//! Limits of the processes of a tree.

use serde::{Deserialize, Serialize};

/// Limits of the processes of a tree. `None` leaves the limit of the host. Core dumps are always off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory of each process in bytes: private writable mappings and heap (`RLIMIT_DATA`).
    pub memory_bytes: Option<u64>,
    /// Open files of each process (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Number of processes and threads (`RLIMIT_NPROC`). In a user namespace the limit counts the tree alone, otherwise
    /// all processes of the user. It does not bind root.
    pub processes: Option<u64>,
}
