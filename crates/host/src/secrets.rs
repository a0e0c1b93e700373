//! What must not reach a tape.

use std::fmt;

use capstan_protocol::{Content, ContentPart, KnownPart, ToolOutput};
use serde_json::Value;

/// How long a text must be to be taken for a secret.
const SHORTEST: usize = 12;
/// What stands in a secret's place.
const MASK: &str = "[masked]";

/// Texts that no tool output may show, such as the provider's key: a tool can read files and processes, and what it
/// says stands on the tape for good.
///
/// It keeps a key from getting there by accident. Whoever wants to can have it printed in pieces, or in another alphabet.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// These texts. Short ones are left out: a word such as `test`, which servers without keys are given for one, is in
    /// everything and no secret.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let texts = texts.into_iter().map(|text| text.trim().to_owned()).filter(|text| text.len() >= SHORTEST);
        // In a file of JSON, which a tool may show as it is, some letters are written in another way.
        let mut texts: Vec<String> = texts.flat_map(|text| [in_json(&text), text]).collect();
        // One may be a part of another: the longer one first, or its rest would be shown.
        texts.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        texts.dedup();
        Self(texts)
    }

    /// The output with every secret masked.
    pub(crate) fn mask(&self, mut output: ToolOutput) -> ToolOutput {
        match &mut output.content {
            Content::Text(text) => self.mask_text(text),
            Content::Parts(parts) => parts.iter_mut().for_each(|part| self.mask_part(part)),
        }
        output
    }

    /// A content with every secret masked, if it is text.
    pub(crate) fn mask_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(mut text) => {
                self.mask_text(&mut text);
                text.into_bytes()
            }
            Err(error) => error.into_bytes(),
        }
    }

    fn mask_part(&self, part: &mut ContentPart) {
        match part {
            ContentPart::Known(KnownPart::Text { text }) => self.mask_text(text),
            ContentPart::Known(KnownPart::ImageUrl { image_url }) => self.mask_text(&mut image_url.url),
            ContentPart::Other(fields) => fields.values_mut().for_each(|value| self.mask_value(value)),
        }
    }

    pub(crate) fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_value(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.mask_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// An image may be millions of letters long, and is handed on as it is where it holds nothing.
    pub(crate) fn mask_text(&self, text: &mut String) {
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), MASK);
            }
        }
    }
}

/// A text as it stands between the quotes of a JSON text.
fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Secrets;
    use capstan_protocol::{Content, ContentPart, ToolOutput};
    use serde_json::json;

    #[test]
    fn x06_a_secret_in_a_tool_output_is_masked() {
        let secrets = Secrets::new(["sk-0123456789".to_owned(), "test".to_owned(), String::new()]);
        assert_eq!(secrets.mask(ToolOutput::ok("KEY=sk-0123456789\ntest")).text(), "KEY=[masked]\ntest");
        assert_eq!(secrets.mask(ToolOutput::ok("nothing")).text(), "nothing");
    }

    #[test]
    fn x06_a_secret_is_masked_as_a_whole_whatever_letters_it_has() {
        let secrets = Secrets::new([
            "sk-0123456789\n".to_owned(),
            "sk-0123456789-long".to_owned(),
            "pass\"word\\1234".to_owned(),
        ]);
        let said = |text: &str| secrets.mask(ToolOutput::ok(text)).text();
        assert_eq!(said("sk-0123456789-long sk-0123456789"), "[masked] [masked]");
        let part = |part: serde_json::Value| serde_json::from_value::<ContentPart>(part).unwrap();
        let masked = |value| secrets.mask(ToolOutput::ok(Content::Parts(vec![part(value)]))).content;
        let other = json!({"type": "file", "name": "pass\"word\\1234"});
        assert_eq!(masked(other), Content::Parts(vec![part(json!({"type": "file", "name": "[masked]"}))]));
        let image = json!({"type": "image_url", "image_url": {"url": "https://x.example/?key=sk-0123456789"}});
        assert_eq!(masked(image), Content::Parts(vec![ContentPart::image("https://x.example/?key=[masked]")]));
        assert_eq!(said("it is pass\"word\\1234!"), "it is [masked]!");
    }

    #[test]
    fn x06_a_secret_is_found_in_every_part_and_in_what_is_kept() {
        let secrets = Secrets::new(["one\ntwo\"three\\".to_owned()]);
        let said = |text: &str| secrets.mask(ToolOutput::ok(text)).text();
        assert_eq!(said("it is one\ntwo\"three\\!"), "it is [masked]!");
        assert_eq!(said(r#"{"key": "one\ntwo\"three\\"}"#), r#"{"key": "[masked]"}"#, "in a file of JSON");
        let other = json!({"type": "file", "about": ["one\ntwo\"three\\"], "bytes": 3});
        let parts =
            vec![ContentPart::text("one\ntwo\"three\\"), ContentPart::Other(other.as_object().unwrap().clone())];
        let masked = serde_json::to_value(secrets.mask(ToolOutput::ok(Content::Parts(parts))).content).unwrap();
        let expected =
            json!([{"type": "text", "text": "[masked]"}, {"type": "file", "about": ["[masked]"], "bytes": 3}]);
        assert_eq!(masked, expected);
        assert_eq!(secrets.mask_bytes(b"one\ntwo\"three\\".to_vec()), b"[masked]");
        assert_eq!(secrets.mask_bytes(vec![0, 255]), [0, 255]);
    }
}
