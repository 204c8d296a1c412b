//! The envelope of everything that is printed or sent as JSON.

use serde::{Deserialize, Serialize};

/// A document: the version of its form, what it is, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document<T> {
    /// The version of the form; it grows when a field changes its meaning or goes away.
    pub v: u32,
    /// What the document is, such as `policy.explanation`.
    pub kind: String,
    /// What it says.
    pub data: T,
}

impl<T> Document<T> {
    /// A document of the first version.
    pub fn new(kind: impl Into<String>, data: T) -> Self {
        Self { v: 1, kind: kind.into(), data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_its_version_and_kind() {
        let text = serde_json::to_string(&Document::new("policy.check", [1])).unwrap();
        assert_eq!(text, r#"{"v":1,"kind":"policy.check","data":[1]}"#);
    }
}
