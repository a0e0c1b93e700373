//! Opaque cursors: the end of a page, bound to its list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use capstan_hooks::contracts::ApiMethod;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::blob_hash;
use serde_json::json;

/// Digits of the checksum in a cursor.
const CHECKSUM_DIGITS: usize = 16;

/// A list that is read in pages: the method that reads it, and its owner.
///
/// The checksum binds a cursor to its list. It need not be secret: a forged cursor leads to a
/// position in a list that the caller may read anyway.
pub(super) struct PagedList<'a> {
    pub(super) method: ApiMethod,
    /// The tape or the namespace, and everything else that distinguishes the list.
    pub(super) list_key: &'a str,
}

impl PagedList<'_> {
    /// Cursor of a position.
    pub(super) fn encode_cursor(&self, position: &str) -> String {
        BASE64.encode(format!("{}{position}", self.checksum(position)))
    }

    /// Position of a cursor. A cursor of another list is rejected.
    pub(super) fn decode_cursor(&self, cursor: &str) -> Result<String, ApiError> {
        let decode = || {
            let text = String::from_utf8(BASE64.decode(cursor).ok()?).ok()?;
            let (checksum, position) = text.split_at_checked(CHECKSUM_DIGITS)?;
            (checksum == self.checksum(position)).then(|| position.to_owned())
        };
        decode().ok_or_else(|| {
            let message = format!("this is not a cursor that {} returned for this list", self.method);
            ApiError::new(ApiErrorCode::InvalidArgument, message)
        })
    }

    fn checksum(&self, position: &str) -> String {
        let text = json!(["cursor", self.method.as_str(), self.list_key, position]).to_string();
        let mut digits = blob_hash(text.as_bytes()).as_str().to_owned();
        digits.truncate(CHECKSUM_DIGITS);
        digits
    }
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::ApiMethod;
    use capstan_protocol::ApiErrorCode;

    use super::PagedList;

    #[test]
    fn k05_a_cursor_is_valid_for_its_own_list_only() {
        let list = |method, list_key| PagedList { method, list_key };
        let own = list(ApiMethod::HistoryPage, "tape");
        let cursor = own.encode_cursor("42");
        assert_eq!(own.decode_cursor(&cursor).unwrap(), "42");
        assert!(!cursor.contains("42"), "the position is not readable: {cursor}");
        let others = [list(ApiMethod::EventsPage, "tape"), list(ApiMethod::HistoryPage, "another")];
        for other in others {
            assert_eq!(other.decode_cursor(&cursor).unwrap_err().code, ApiErrorCode::InvalidArgument);
        }
        for garbage in ["", "42", "====", "é", &cursor[1..], &format!("{cursor}AA")] {
            assert!(own.decode_cursor(garbage).is_err(), "{garbage}");
        }
    }
}
