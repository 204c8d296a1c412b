//! Credentials: who holds the right words is who they are.
//!
//! Guarantees: a credential has 256 random bits; only digests are compared and kept in memory where a comparison is all that is needed, so
//! that time tells nothing about them. Does not: say what its holder may do. Policy does.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use palyra_types::{Entropy, Sha256Digest, entropy::NoEntropy, word::words};
use zeroize::Zeroizing;

words! {
    /// The kinds of credential.
    pub enum CredentialKind ("kind of credential") {
        /// The owner's, from the state directory.
        Owner = "owner",
        /// The agents', from the state directory.
        Agent = "agent",
        /// A session of the console.
        Console = "console",
    }
}

/// Makes a new credential.
///
/// # Errors
/// When there is no randomness.
pub fn generate(entropy: &dyn Entropy) -> Result<Zeroizing<String>, NoEntropy> {
    let mut bytes = Zeroizing::new([0; 32]);
    entropy.fill(bytes.as_mut_slice())?;
    Ok(Zeroizing::new(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes.as_slice()))))
}

/// Whether a text is a credential that [`generate`] could have made.
#[must_use]
pub fn is_whole(text: &str) -> bool {
    let random = text.strip_prefix(PREFIX).and_then(|random| BASE64_URL_SAFE_NO_PAD.decode(random).ok());
    random.is_some_and(|random| random.len() == 32)
}

/// The digest of a credential. Digests are compared instead of credentials: how long that takes says nothing about what was sent.
#[must_use]
pub fn digest(credential: &str) -> Sha256Digest {
    Sha256Digest::of(credential.as_bytes())
}

/// What every credential begins with, so that it is recognised where it does not belong.
const PREFIX: &str = "plr_";

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;

    #[test]
    fn no_two_credentials_are_alike_and_the_journal_masks_them() {
        let (one, other) = (generate(&SystemEntropy).unwrap(), generate(&SystemEntropy).unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), PREFIX.len() + 43);
        assert!(!palyra_journal::mask::masked(one.to_string()).contains(one.as_str()));
    }
}
