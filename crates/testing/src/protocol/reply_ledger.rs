//! What a server remembers of its answers, to know it when it comes back.

use std::collections::HashMap;

/// What was given out that has to come back as it was.
#[derive(Debug, Default)]
pub(crate) struct ReplyLedger {
    /// Signatures, and what each signs for which model.
    signatures: HashMap<String, (String, String)>,
    /// Items that may only come back together with another.
    dependencies: HashMap<String, String>,
    last_number: usize,
}

impl ReplyLedger {
    /// A number nobody had before.
    pub(super) fn next_number(&mut self) -> usize {
        self.last_number += 1;
        self.last_number
    }

    /// A signature of this text, by a model.
    pub(super) fn sign(&mut self, model: &str, text: &str) -> String {
        let signature = format!("c2lnbmF0dXJl{:04}", self.next_number());
        self.signatures.insert(signature.clone(), (model.to_owned(), text.to_owned()));
        signature
    }

    /// Whether this model gave this signature for this text.
    pub(super) fn is_valid_signature(&self, model: &str, signature: &str, text: &str) -> bool {
        self.signatures.get(signature).is_some_and(|(signer, signed)| signer == model && signed == text)
    }

    /// From now on one item needs the other before it.
    pub(super) fn add_dependency(&mut self, item: &str, to: &str) {
        self.dependencies.insert(item.to_owned(), to.to_owned());
    }

    /// What an item needs before it.
    pub(super) fn dependency_of(&self, item: &str) -> Option<&str> {
        self.dependencies.get(item).map(String::as_str)
    }
}
