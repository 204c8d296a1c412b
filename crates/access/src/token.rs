//! The text of a token: `plr_<kind>_<random>_<checksum>`.
//!
//! Guarantees: 256 random bits; one spelling; a slip of the pen is found without looking anything up, because the last six characters
//! follow from the rest. Only the SHA-256 of the whole text is ever kept.
//! Does not: say whether a token is good. That is the registry.

use palyra_types::{Entropy, PrincipalKind, Sha256Digest, entropy::NoEntropy, word::words};
use zeroize::Zeroizing;

use crate::base62;

words! {
    /// What kind of principal an API token stands for.
    pub enum TokenKind ("kind of token") {
        /// A program that proposes calls.
        Agent = "agent",
        /// A person.
        User = "user",
        /// Another machine.
        Service = "service",
    }
}

words! {
    /// What a text of this form is a credential of.
    pub enum CredentialKind ("kind of credential") {
        /// An agent's API token.
        Agent = "agent",
        /// A person's API token.
        User = "user",
        /// A service's API token.
        Service = "service",
        /// A session of the console.
        Console = "console",
        /// A link that opens the console once.
        Link = "link",
    }
}

/// Makes and checks the text of tokens.
#[derive(Debug, Clone, Copy)]
pub struct TokenText;

impl TokenText {
    /// Makes a new text, and the digest to keep of it.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate(
        kind: CredentialKind,
        entropy: &dyn Entropy,
    ) -> Result<(Zeroizing<String>, Sha256Digest), NoEntropy> {
        let mut random = Zeroizing::new([0; 32]);
        entropy.fill(random.as_mut_slice())?;
        let spelt = base62::spell_256(&random);
        // Room for all of it at once: a text that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(LONGEST));
        for part in [PREFIX, kind.as_str(), "_"] {
            text.push_str(part);
        }
        text.extend(spelt.iter().copied().map(char::from));
        let checksum = checksum(text.as_bytes());
        text.push('_');
        text.extend(checksum.map(char::from));
        let digest = Self::digest(&text);
        Ok((text, digest))
    }

    /// Whether a text is one that [`Self::generate`] could have made, and of which kind. Looks nothing up and allocates nothing.
    ///
    /// # Errors
    /// When it is not; the error says what is wrong with it, and nothing of the text.
    pub fn check(text: &str) -> Result<CredentialKind, Malformed> {
        let rest = text.strip_prefix(PREFIX).ok_or(Malformed::Prefix)?;
        let (word, rest) = rest.split_once('_').ok_or(Malformed::Kind)?;
        let kind = *CredentialKind::ALL.iter().find(|kind| kind.as_str() == word).ok_or(Malformed::Kind)?;
        if rest.len() != base62::WIDTH_OF_256_BITS + 1 + base62::WIDTH_OF_32_BITS {
            return Err(Malformed::Length);
        }
        let (random, sum) = rest.as_bytes().split_at(base62::WIDTH_OF_256_BITS);
        let sum = sum.strip_prefix(b"_").ok_or(Malformed::Alphabet)?;
        if !random.iter().chain(sum).all(|&byte| base62::is_digit(byte)) {
            return Err(Malformed::Alphabet);
        }
        if !base62::fits_256(random) {
            return Err(Malformed::Range);
        }
        let covered = text.len().checked_sub(sum.len() + 1).and_then(|end| text.as_bytes().get(..end));
        if covered.map(checksum).as_ref().map(<[u8; 6]>::as_slice) != Some(sum) {
            return Err(Malformed::Checksum);
        }
        Ok(kind)
    }

    /// What is kept of a text.
    #[must_use]
    pub fn digest(text: &str) -> Sha256Digest {
        Sha256Digest::of(text.as_bytes())
    }
}

impl TokenKind {
    /// The kind of principal.
    #[must_use]
    pub const fn principal(self) -> PrincipalKind {
        match self {
            Self::Agent => PrincipalKind::Agent,
            Self::User => PrincipalKind::User,
            Self::Service => PrincipalKind::Service,
        }
    }
}

impl From<PrincipalKind> for TokenKind {
    fn from(kind: PrincipalKind) -> Self {
        match kind {
            PrincipalKind::Agent => Self::Agent,
            PrincipalKind::User => Self::User,
            PrincipalKind::Service => Self::Service,
        }
    }
}

impl From<TokenKind> for CredentialKind {
    fn from(kind: TokenKind) -> Self {
        match kind {
            TokenKind::Agent => Self::Agent,
            TokenKind::User => Self::User,
            TokenKind::Service => Self::Service,
        }
    }
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not begin with `plr_`.
    #[error("a token begins with `plr_`")]
    Prefix,
    /// No kind that there is.
    #[error("the token is of no known kind")]
    Kind,
    /// Too short or too long.
    #[error("the token is cut off or too long")]
    Length,
    /// Something else than letters and digits.
    #[error("the token has a character that no token has")]
    Alphabet,
    /// More than 256 bits: a second spelling of nothing.
    #[error("the token holds a number that no token holds")]
    Range,
    /// The last characters do not follow from the rest.
    #[error("the token has a wrong checksum")]
    Checksum,
}

impl Malformed {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Prefix | Self::Kind => "send a Palyra token, such as `plr_agent_…`, as the bearer",
            Self::Length | Self::Alphabet | Self::Range | Self::Checksum => {
                "copy the token again, whole and without spaces or quotes"
            }
        }
    }
}

/// The six characters that follow from everything before them.
fn checksum(covered: &[u8]) -> [u8; base62::WIDTH_OF_32_BITS] {
    let [a, b, c, d, ..] = *Sha256Digest::of(covered).as_bytes();
    base62::spell_32(u32::from_be_bytes([a, b, c, d]))
}

/// What every credential begins with, so that it is recognised where it does not belong.
const PREFIX: &str = "plr_";

/// Enough for the longest text.
const LONGEST: usize = 64;

#[cfg(test)]
#[allow(clippy::string_slice, reason = "the texts that are cut are ASCII")]
mod tests {
    use palyra_types::entropy::{SeededEntropy, SystemEntropy};
    use proptest::{prelude::*, sample::select};

    use super::*;

    fn kinds() -> impl Strategy<Value = CredentialKind> {
        select(CredentialKind::ALL)
    }

    fn text(kind: CredentialKind, seed: u64) -> String {
        TokenText::generate(kind, &SeededEntropy::new(seed)).unwrap().0.to_string()
    }

    /// A text whose checksum is right, whatever its other parts are.
    fn sealed(before: &str) -> String {
        let sum = checksum(before.as_bytes()).map(char::from);
        format!("{before}_{}", String::from_iter(sum))
    }

    #[test]
    fn a_token_says_its_kind_and_no_two_are_alike() {
        let (one, digest) = TokenText::generate(CredentialKind::Service, &SystemEntropy).unwrap();
        let (other, _) = TokenText::generate(CredentialKind::Service, &SystemEntropy).unwrap();
        assert_ne!(one, other);
        assert!(one.starts_with("plr_service_") && one.len() == 62);
        assert_eq!(TokenText::check(&one), Ok(CredentialKind::Service));
        assert_eq!(digest, Sha256Digest::of(one.as_bytes()));
    }

    #[test]
    fn the_text_of_known_bytes_is_the_known_one() {
        assert_eq!(text(CredentialKind::Agent, 7), "plr_agent_cryFKk3rZkuc0zQmwX698ZaOFkbmIVXKMA3Dlt1YVnu_2qkPct");
    }

    #[test]
    fn each_fault_is_told_apart() {
        let good = text(CredentialKind::Agent, 7);
        let random = "0".repeat(43);
        let cases = [
            (String::new(), Malformed::Prefix),
            (good.replace("plr_", "PLR_"), Malformed::Prefix),
            (good.replace("plr_", "plr-"), Malformed::Prefix),
            ("plr_".to_owned(), Malformed::Kind),
            (good.replace("agent", "owner"), Malformed::Kind),
            (good.replace("agent", "Agent"), Malformed::Kind),
            (format!("{good}0"), Malformed::Length),
            (good[..good.len() - 1].to_owned(), Malformed::Length),
            (sealed(&format!("plr_agent_{}-", &random[1..])), Malformed::Alphabet),
            (format!("plr_agent_{random}-000000"), Malformed::Alphabet),
            (sealed(&format!("plr_agent_{}", "z".repeat(43))), Malformed::Range),
            (format!("plr_agent_{random}_000000"), Malformed::Checksum),
        ];
        for (text, fault) in cases {
            assert_eq!(TokenText::check(&text), Err(fault), "{text}");
        }
        assert_eq!(TokenText::check(&sealed(&format!("plr_agent_{random}"))), Ok(CredentialKind::Agent));
    }

    #[test]
    fn a_checksum_covers_the_kind() {
        let agent = text(CredentialKind::Agent, 7);
        assert_eq!(TokenText::check(&agent.replace("agent", "user")), Err(Malformed::Checksum));
    }

    #[test]
    fn a_token_stands_for_a_principal_of_its_kind() {
        for &kind in TokenKind::ALL {
            assert_eq!(TokenKind::from(kind.principal()), kind);
            assert_eq!(CredentialKind::from(kind).as_str(), kind.as_str());
            assert_eq!(kind.principal().as_str(), kind.as_str());
        }
    }

    proptest! {
        #[test]
        fn every_text_that_is_made_is_found_whole(kind in kinds(), seed: u64) {
            prop_assert_eq!(TokenText::check(&text(kind, seed)), Ok(kind));
        }

        #[test]
        fn a_single_changed_character_is_found(kind in kinds(), seed: u64, at in 0_usize..64, to: char) {
            let text = text(kind, seed);
            let mut changed: Vec<char> = text.chars().collect();
            let at = at % changed.len();
            prop_assume!(changed[at] != to);
            changed[at] = to;
            prop_assert!(TokenText::check(&String::from_iter(changed)).is_err());
        }

        #[test]
        fn another_letter_or_digit_in_any_place_is_found(seed: u64, at in 0_usize..64, to in "[0-9A-Za-z_]") {
            let text = text(CredentialKind::User, seed);
            let at = at % text.len();
            prop_assume!(text[at..=at] != to);
            let changed = format!("{}{to}{}", &text[..at], &text[at + 1..]);
            prop_assert!(TokenText::check(&changed).is_err());
        }

        #[test]
        fn a_cut_or_a_longer_text_is_found(kind in kinds(), seed: u64, at in 0_usize..64, more in ".{1,4}") {
            let text = text(kind, seed);
            prop_assert!(TokenText::check(&text[..at % text.len()]).is_err());
            prop_assert!(TokenText::check(&text[1..]).is_err());
            for longer in [format!("{text}{more}"), format!("{more}{text}")] {
                prop_assert!(TokenText::check(&longer).is_err());
            }
        }

        #[test]
        fn no_text_whatever_is_too_much(text in ".*") {
            prop_assert!(TokenText::check(&text).is_err());
        }

        #[test]
        fn no_text_that_begins_like_a_token_is_too_much(rest in "(agent|user|link)?_.{0,60}") {
            let text = format!("plr_{rest}");
            prop_assert!(TokenText::check(&text).is_err());
        }
    }
}
