//! Limits of the processes of a tree.

use serde::{Deserialize, Serialize};

/// Limits of the processes of a tree. `None` leaves the limit of the host. Core dumps are always off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory of each process in bytes: private writable mappings and heap (`RLIMIT_DATA`).
    pub memory_bytes: Option<u64>,
    /// Open files of each process (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Number of processes and threads.
    ///
    /// For an ordinary user it is `RLIMIT_NPROC`: it counts the tree alone where the tree has a user namespace, otherwise
    /// all processes of the user. That limit does not bind root, whose trees are bound by the process ids of their PID
    /// namespace (`pid_max`, Linux 6.14 or later): 300 more than this at first, about this many after each id was used once.
    /// Without such a namespace, processes of root are not limited.
    pub processes: Option<u64>,
}

/// First version of Linux in which `pid_max` belongs to a PID namespace. Before, it is that of the machine.
const NAMESPACED_PID_MAX: (u32, u32) = (6, 14);

/// Returns true if a kernel of this release has a `pid_max` for each PID namespace.
pub(crate) fn has_namespaced_pid_max(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version: (u32, u32)| version >= NAMESPACED_PID_MAX)
}

#[cfg(test)]
mod tests {
    use super::has_namespaced_pid_max;

    #[test]
    fn x05_pid_max_is_written_only_where_it_belongs_to_the_namespace() {
        for release in ["6.14.0", "6.18.44-fc-v657", "7.0-rc1", "10.1"] {
            assert!(has_namespaced_pid_max(release), "{release}");
        }
        for release in ["6.13.9", "6.1.0-18-amd64", "5.15.0", "4.18.0-553.el8", "6", "", "linux"] {
            assert!(!has_namespaced_pid_max(release), "{release}");
        }
    }
}
