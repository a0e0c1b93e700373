//! Exhausted file descriptors, a condition to wait for and never an outcome.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::RetryBackoff;

/// Backoff while this process or the system has no free file descriptor. Descriptors become free as soon as another turn
/// ends a connection or a command, so the delays are short.
pub const FILE_LIMIT_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(50), max_delay: Duration::from_secs(2) };

/// Error numbers of "too many open files": in the system (`ENFILE`), and in the process (`EMFILE`).
const FILE_LIMIT_ERRNOS: [i32; 2] = [23, 24];

/// Returns true if an error or one of its sources means that the limit of open files is reached.
///
/// ```
/// use capstan_protocol::is_file_limit_error;
///
/// assert!(is_file_limit_error(&std::io::Error::from_raw_os_error(24)));
/// assert!(!is_file_limit_error(&std::io::Error::from_raw_os_error(2)));
/// ```
pub fn is_file_limit_error(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if is_file_limit(error) {
            return true;
        }
        next = error.source();
    }
    false
}

fn is_file_limit(error: &(dyn Error + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<io::Error>() else { return false };
    // The wrapped error is not a source of its wrapper.
    let wraps_limit = || error.get_ref().is_some_and(|inner| is_file_limit_error(inner));
    error.raw_os_error().is_some_and(|number| FILE_LIMIT_ERRNOS.contains(&number)) || wraps_limit()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::is_file_limit_error;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct ConnectFailure(#[source] io::Error);

    #[test]
    fn x01_file_limit_is_found_in_every_source_of_an_error() {
        let limit = || io::Error::from_raw_os_error(24);
        assert!(is_file_limit_error(&ConnectFailure(limit())));
        assert!(is_file_limit_error(&io::Error::other(ConnectFailure(limit()))));
        assert!(is_file_limit_error(&io::Error::other(limit())));
        assert!(!is_file_limit_error(&ConnectFailure(io::Error::other("refused"))));
    }
}
