//! Why a connection was refused, in a word and in a sentence.
//!
//! Guarantees: a closed list of kinds, each with advice; whatever came from outside stands in a detail escaped and cut
//! short.

use palyra_types::{visible::visible, word::words};
use serde::Serialize;

/// A connection that was not let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{detail}")]
pub struct EgressRefusal {
    /// What kind of refusal it is.
    pub kind: EgressRefusalKind,
    /// What it is about, in words.
    pub detail: String,
}

impl EgressRefusal {
    /// A refusal with its detail: lowercase, no full stop, text from outside already made visible.
    pub fn new(kind: EgressRefusalKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        self.kind.advice()
    }
}

words! {
    /// The kinds of refusal.
    pub enum EgressRefusalKind ("egress refusal") {
        /// What was named is no host that all programs read alike.
        NotAHost = "not_a_host",
        /// No rule names the host.
        NotListed = "not_listed",
        /// Policy says no.
        DeniedByPolicy = "denied_by_policy",
        /// A person said no.
        DeniedByPerson = "denied_by_person",
        /// A person was asked and did not answer.
        Unanswered = "unanswered",
        /// A rule names the host, but not this port of it.
        PortNotListed = "port_not_listed",
        /// The host has an address that is not public.
        PrivateAddress = "private_address",
        /// The connection would lead back to the daemon or to the proxy.
        OwnListener = "own_listener",
        /// The name has no address.
        Unresolvable = "unresolvable",
        /// None of the addresses takes the connection.
        Unreachable = "unreachable",
        /// The connection does not begin as TLS.
        NoTls = "no_tls",
        /// The TLS hello cannot be read.
        BrokenHello = "broken_hello",
        /// The TLS hello names no server.
        NoServerName = "no_server_name",
        /// The TLS hello names another server.
        WrongServerName = "wrong_server_name",
        /// The TLS hello has an encrypted part that may name another server.
        EncryptedHello = "encrypted_hello",
        /// The request's Host header is missing, doubled or another host's.
        WrongHostHeader = "wrong_host_header",
        /// The run has as many connections as it may have.
        TooManyConnections = "too_many_connections",
        /// The run has as many names looked up as it may have at once.
        TooManyLookups = "too_many_lookups",
        /// Somebody took too long.
        TooSlow = "too_slow",
        /// What the client sent cannot be read.
        BadRequest = "bad_request",
        /// A part of a protocol that the proxy does not offer.
        NotSupported = "not_supported",
        /// The host could not show that it is the host.
        Untrusted = "untrusted",
        /// A placeholder of a secret stands where the secret may not go.
        SecretMisplaced = "secret_misplaced",
        /// A secret that is to be put in the place of its placeholder cannot be had.
        SecretUnavailable = "secret_unavailable",
        /// What was sent cannot be looked through.
        CannotBeRead = "cannot_be_read",
    }
}

impl EgressRefusalKind {
    /// Whether there was a connection, and a request on it was refused.
    pub(crate) const fn is_about_a_request(self) -> bool {
        matches!(self, Self::SecretMisplaced | Self::SecretUnavailable | Self::CannotBeRead)
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NotAHost => "name the host as `example.org`, `192.0.2.7` or `[2001:db8::7]`",
            Self::NotListed => "add the host under [[egress.host]] in the configuration",
            Self::DeniedByPolicy => "ask for something else, or change the policy",
            Self::DeniedByPerson => "do without it, or ask the person who said no",
            Self::Unanswered => "try again when somebody can answer",
            Self::PortNotListed => "add the port to the host's `ports` under [[egress.host]]",
            Self::PrivateAddress => {
                "give the host's rule `allow_private = true` if its address is private and meant to be reached; \
                 a metadata service is reached by its address alone, and no other address that is not public is"
            }
            Self::OwnListener => "nothing reaches the daemon's own listeners from inside; use the tools instead",
            Self::Unresolvable => "check the spelling of the host and the name service of the machine",
            Self::Unreachable => "check that the host is up and takes connections on this port",
            Self::NoTls => {
                "use TLS; the rule of a host to which no secret of the call is bound may say `tls = \"any\"`"
            }
            Self::BrokenHello => "let the client send one TLS hello, whole and in time, that says everything once",
            Self::NoServerName => "let the client send the server's name, or give the host's rule `tls = \"any\"`",
            Self::WrongServerName => "let the client name the server that it connects to",
            Self::EncryptedHello => "turn encrypted client hello off, or give the host's rule `tls = \"any\"`",
            Self::WrongHostHeader => "send one Host header that names the host of the connection",
            Self::TooManyConnections => "close connections before opening more",
            Self::TooManyLookups => "wait until names are found before asking for more",
            Self::TooSlow => "try again",
            Self::BadRequest => "send a well-formed HTTP/1.1 or SOCKS5 request",
            Self::NotSupported => "use HTTP CONNECT, plain HTTP or the SOCKS5 command CONNECT",
            Self::Untrusted => {
                "check the name; a private authority is added with `trust` under [egress] in the configuration"
            }
            Self::SecretMisplaced => "send the placeholder only where the secret's bindings let it go",
            Self::SecretUnavailable => {
                "ask whoever keeps the secret to put a value that can be sent there; docs/vault.md says what can"
            }
            Self::CannotBeRead => "send and ask for what is neither compressed nor longer than can be looked through",
        }
    }
}

/// Text from outside, as it may stand in a sentence: visible and of bounded length.
pub(crate) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(LONGEST_SHOWN).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    visible(&cut)
}

/// [`shown`], for bytes.
pub(crate) fn shown_bytes(bytes: &[u8]) -> String {
    // Each character has at most four bytes, so nothing that would be shown is cut off here.
    shown(&String::from_utf8_lossy(bytes.get(..LONGEST_SHOWN * 4).unwrap_or(bytes)))
}

const LONGEST_SHOWN: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_holds_nothing_hidden() {
        assert_eq!(shown("a\r\nb"), "a<U+000D><U+000A>b");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), LONGEST_SHOWN + 1);
        assert_eq!(shown_bytes(&[0xff, 0]), "\u{fffd}<U+0000>");
    }

    #[test]
    fn a_refusal_serialises_its_kind_as_the_one_word() {
        let refusal = EgressRefusal::new(EgressRefusalKind::NotListed, "no rule names `example.org`");
        let expected = serde_json::json!({ "kind": "not_listed", "detail": "no rule names `example.org`" });
        assert_eq!(serde_json::to_value(refusal).unwrap(), expected);
    }

    #[test]
    fn every_kind_has_advice() {
        assert!(EgressRefusalKind::ALL.iter().all(|kind| !kind.advice().is_empty()));
    }
}
