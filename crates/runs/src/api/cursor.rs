//! Opaque cursors: the end of a page, bound to its list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use capstan_hooks::contracts::ApiMethod;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::blob_hash;
use serde_json::json;

/// Digits of the checksum in a cursor.
const CHECKSUM_DIGITS: usize = 16;

/// A list that is read in parts: the method that reads it, and whose it is.
///
/// The checksum binds a cursor to its list. It need not be secret: a forged cursor leads to a
/// place of a list that the grant lets the caller read anyway.
pub(super) struct PagedList<'a> {
    pub(super) method: ApiMethod,
    /// The tape or the namespace, and everything else that distinguishes the list.
    pub(super) list_key: &'a str,
}

impl PagedList<'_> {
    /// A cursor that stands at this place.
    pub(super) fn encode_cursor(&self, place: &str) -> String {
        BASE64.encode(format!("{}{place}", self.checksum(place)))
    }

    /// The place at which a cursor stands, if it is one of this list.
    pub(super) fn decode_cursor(&self, cursor: &str) -> Result<String, ApiError> {
        let read = || {
            let text = String::from_utf8(BASE64.decode(cursor).ok()?).ok()?;
            let (checksum, place) = text.split_at_checked(CHECKSUM_DIGITS)?;
            (checksum == self.checksum(place)).then(|| place.to_owned())
        };
        read().ok_or_else(|| {
            let message = format!("this is no cursor that {} gave for this list", self.method);
            ApiError::new(ApiErrorCode::InvalidArgument, message)
        })
    }

    fn checksum(&self, place: &str) -> String {
        let text = json!(["cursor", self.method.as_str(), self.list_key, place]).to_string();
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
    fn k05_a_cursor_is_good_for_its_own_list_alone() {
        let list = |method, of| PagedList { method, list_key: of };
        let own = list(ApiMethod::HistoryPage, "tape");
        let cursor = own.encode_cursor("42");
        assert_eq!(own.decode_cursor(&cursor).unwrap(), "42");
        assert!(!cursor.contains("42"), "it shows nothing: {cursor}");
        let others = [list(ApiMethod::EventsPage, "tape"), list(ApiMethod::HistoryPage, "another")];
        for other in others {
            assert_eq!(other.decode_cursor(&cursor).unwrap_err().code, ApiErrorCode::InvalidArgument);
        }
        for garbage in ["", "42", "====", "é", &cursor[1..], &format!("{cursor}AA")] {
            assert!(own.decode_cursor(garbage).is_err(), "{garbage}");
        }
    }
}
