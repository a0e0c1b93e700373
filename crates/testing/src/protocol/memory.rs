//! What a server remembers of its answers, to know it when it comes back.

use std::collections::HashMap;

/// What was given out that has to come back as it was.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Signatures, and what each signs for which model.
    signed: HashMap<String, (String, String)>,
    /// Items that may only come back together with another.
    needs: HashMap<String, String>,
    given: usize,
}

impl Memory {
    /// A number nobody had before.
    pub(super) fn number(&mut self) -> usize {
        self.given += 1;
        self.given
    }

    /// A signature of this text, by a model.
    pub(super) fn sign(&mut self, model: &str, text: &str) -> String {
        let signature = format!("c2lnbmF0dXJl{:04}", self.number());
        self.signed.insert(signature.clone(), (model.to_owned(), text.to_owned()));
        signature
    }

    /// Whether this model gave this signature for this text.
    pub(super) fn knows(&self, model: &str, signature: &str, text: &str) -> bool {
        self.signed.get(signature).is_some_and(|(signer, signed)| signer == model && signed == text)
    }

    /// From now on one item needs the other before it.
    pub(super) fn tie(&mut self, item: &str, to: &str) {
        self.needs.insert(item.to_owned(), to.to_owned());
    }

    /// What an item needs before it.
    pub(super) fn need(&self, item: &str) -> Option<&str> {
        self.needs.get(item).map(String::as_str)
    }
}
