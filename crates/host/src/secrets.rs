//! What must not reach a tape.

use std::fmt;

use capstan_protocol::{Content, ToolOutput};

/// How long a text must be to be taken for a secret.
const SHORTEST: usize = 12;
/// What stands in a secret's place.
const MASK: &str = "[masked]";

/// Texts that no tool output may show, such as the provider's key: a tool can read files and processes, and what it
/// says stands on the tape for good.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// These texts. Short ones are left out: a word such as `test`, which servers without keys are given for one, is in
    /// everything and no secret.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        Self(texts.into_iter().filter(|text| text.len() >= SHORTEST).collect())
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
}
