//! Texts of a JSON value that are secrets by the name of their field, or by their form.

use serde_json::Value;

/// Words that name secrets, in the name of a field.
const SECRET_WORDS: [&str; 7] = ["key", "token", "secret", "password", "passwd", "auth", "credential"];
/// Minimum length of a text that is taken for a generated key.
const MIN_KEY_LEN: usize = 20;
/// Minimum number of digits of such a text.
const MIN_KEY_DIGITS: usize = 4;

/// Visits the texts of a value that are secrets by the name of a field they are in, or by their form. A text may be changed.
///
/// ```
/// # use capstan_hooks::visit_secret_texts;
/// let mut body = serde_json::json!({ "tier": "flex", "extra": [{ "virtual_key": "of mine" }] });
/// visit_secret_texts(&mut body, &mut |text| text.clear());
/// assert_eq!(body, serde_json::json!({ "tier": "flex", "extra": [{ "virtual_key": "" }] }));
/// ```
pub fn visit_secret_texts(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    visit_texts(value, false, visit);
}

fn visit_texts(value: &mut Value, is_secret_field: bool, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) if is_secret_field || has_key_form(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| visit_texts(item, is_secret_field, visit)),
        Value::Object(fields) => {
            for (name, field) in fields {
                visit_texts(field, is_secret_field || is_secret_name(name), visit);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Checks the name of a field for the words that name secrets.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Checks if a text has the form of a generated key: long, without spaces, of letters and digits.
fn has_key_form(text: &str) -> bool {
    let is_key_char = |character: char| character.is_ascii_alphanumeric() || "-_.+/=".contains(character);
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let letters = text.chars().filter(char::is_ascii_alphabetic).count();
    text.len() >= MIN_KEY_LEN && text.chars().all(is_key_char) && digits >= MIN_KEY_DIGITS && letters > 0
}
