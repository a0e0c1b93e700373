//! What must not reach a tape.

use std::fmt;

use capstan_protocol::{Content, ToolOutput};

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
        // Outputs are searched as JSON, in which some letters are written in another way.
        let mut texts: Vec<String> = texts.flat_map(|text| [in_json(&text), text]).collect();
        // One may be a part of another: the longer one first, or its rest would be shown.
        texts.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        texts.dedup();
        Self(texts)
    }

    /// The output with every secret masked.
    pub(crate) fn mask(&self, output: ToolOutput) -> ToolOutput {
        let Ok(text) = serde_json::to_string(&output.content) else { return output };
        if !self.0.iter().any(|secret| text.contains(secret.as_str())) {
            return output;
        }
        let masked = self.0.iter().fold(text, |text, secret| text.replace(secret.as_str(), MASK));
        let content = serde_json::from_str(&masked).unwrap_or_else(|_| Content::Text(MASK.to_owned()));
        ToolOutput { content, ..output }
    }
}

/// A text as it stands between the quotes of a JSON text.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
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
    use capstan_protocol::ToolOutput;

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
        assert_eq!(said("it is pass\"word\\1234!"), "it is [masked]!");
    }
}
