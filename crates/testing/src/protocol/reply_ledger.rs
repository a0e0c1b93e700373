//! Record of what replies contained, to check it when it comes back in a request.

use std::collections::HashMap;

/// Signatures and ids that must come back unchanged.
#[derive(Debug, Default)]
pub(crate) struct ReplyLedger {
    /// Signature -> (model, signed text).
    signatures: HashMap<String, (String, String)>,
    /// Items that may only come back together with another one.
    dependencies: HashMap<String, String>,
    last_number: usize,
}

impl ReplyLedger {
    /// Returns an unused number.
    pub(super) fn next_number(&mut self) -> usize {
        self.last_number += 1;
        self.last_number
    }

    /// Signs a text on behalf of a model.
    pub(super) fn sign(&mut self, model: &str, text: &str) -> String {
        let signature = format!("c2lnbmF0dXJl{:04}", self.next_number());
        self.signatures.insert(signature.clone(), (model.to_owned(), text.to_owned()));
        signature
    }

    /// Returns true if the model gave this signature for this text.
    pub(super) fn is_valid_signature(&self, model: &str, signature: &str, text: &str) -> bool {
        self.signatures.get(signature).is_some_and(|(signer, signed)| signer == model && signed == text)
    }

    /// Requires that `item` comes back only after `to`.
    pub(super) fn add_dependency(&mut self, item: &str, to: &str) {
        self.dependencies.insert(item.to_owned(), to.to_owned());
    }

    /// Returns the item that must precede `item`.
    pub(super) fn dependency_of(&self, item: &str) -> Option<&str> {
        self.dependencies.get(item).map(String::as_str)
    }
}
