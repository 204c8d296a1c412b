//! Checkpoints: how many records there are and the root over them, signed (C2SP tlog-checkpoint).
//!
//! Guarantees: a checkpoint that opens was signed by the journal's key and names the journal's origin.

use palyra_types::Sha256Digest;
use tlog_tiles::Hash;

use crate::key::{JournalKey, KeyError, VerifyKey};

/// What a journal held at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// How many records.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Sha256Digest,
}

impl Checkpoint {
    /// Signs this checkpoint; the origin is the key's name.
    ///
    /// # Errors
    /// When the origin cannot be the first line of a checkpoint.
    pub fn sign(&self, key: &JournalKey) -> Result<String, KeyError> {
        let text = tlog_tiles::Checkpoint::new(key.public().name(), self.size, Hash(*self.root.as_bytes()), "")
            .map_err(|_| KeyError::NotSignable)?;
        let text = String::from_utf8(text.to_bytes()).map_err(|_| KeyError::NotSignable)?;
        key.sign(&text)
    }

    /// Reads a checkpoint that this key signed for the journal of its name.
    ///
    /// # Errors
    /// When it is not signed by this key, is malformed or belongs to another journal.
    pub fn open(note: &str, key: &VerifyKey) -> Result<Self, KeyError> {
        let text = key.open(note)?;
        let parsed = tlog_tiles::Checkpoint::from_bytes(text.as_bytes()).map_err(|_| KeyError::Malformed)?;
        if parsed.origin() != key.name() {
            return Err(KeyError::NotSigned);
        }
        Ok(Self { size: parsed.size(), root: Sha256Digest::from_bytes(parsed.hash().0) })
    }
}

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;

    #[test]
    fn a_checkpoint_is_three_lines_and_a_signature() {
        let (key, _) = JournalKey::generate("palyra.local/x", &SystemEntropy).unwrap();
        let checkpoint = Checkpoint { size: 5, root: Sha256Digest::of(b"") };
        let note = checkpoint.sign(&key).unwrap();
        let expected = "palyra.local/x\n5\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— palyra.local/x ";
        assert!(note.starts_with(expected), "{note}");
        assert_eq!(Checkpoint::open(&note, key.public()).unwrap(), checkpoint);
    }

    #[test]
    fn a_signed_text_of_another_origin_is_no_checkpoint_of_this_journal() {
        let (key, _) = JournalKey::generate("palyra.local/x", &SystemEntropy).unwrap();
        let note = key.sign("palyra.local/y\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n").unwrap();
        assert!(matches!(Checkpoint::open(&note, key.public()), Err(KeyError::NotSigned)));
        let note = key.sign("{\"v\":1}\n").unwrap();
        assert!(matches!(Checkpoint::open(&note, key.public()), Err(KeyError::Malformed)));
    }
}
