//! Estimate of the memory that a JSON text takes when it is parsed.
//!
//! A parsed value takes up to a hundred times the memory of its text: each object and array allocates a table, and each
//! value has the size of the largest kind. The estimate is made before parsing, from the characters of the structure.

/// Shorter texts are not worth an estimate.
const MIN_ESTIMATED_BYTES: usize = 64 * 1024;
/// Memory of an object with one field, in bytes.
const OBJECT_BYTES: usize = 600;
/// Memory of an array with one value, in bytes.
const ARRAY_BYTES: usize = 320;
/// Memory of each further field or value, in bytes.
const NEXT_VALUE_BYTES: usize = 220;

/// Returns true if the parsed text would take more than about `max_bytes`.
pub(crate) fn exceeds_memory(json: &str, max_bytes: usize) -> bool {
    if json.len() < MIN_ESTIMATED_BYTES {
        return false;
    }
    let (mut bytes, mut is_string, mut is_escaped) = (json.len(), false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' => bytes += OBJECT_BYTES,
            b'[' => bytes += ARRAY_BYTES,
            b',' => bytes += NEXT_VALUE_BYTES,
            _ => {}
        }
    }
    bytes > max_bytes
}

#[cfg(test)]
mod tests {
    use super::exceeds_memory;

    #[test]
    fn a08_structure_counts_and_text_does_not() {
        let repeat = |part: &str| format!("[{}]", vec![part; 100_000].join(","));
        let limit = 10 << 20;
        assert!(exceeds_memory(&repeat("{}"), limit) && exceeds_memory(&repeat("[]"), limit));
        assert!(exceeds_memory(&repeat("0"), limit));
        let text = serde_json::json!({ "text": repeat(r#"{"a":[0,1]}\""#) }).to_string();
        assert!(!exceeds_memory(&text, limit), "brackets inside a text");
        assert!(!exceeds_memory("[{},{}]", 1), "a short text");
    }
}
