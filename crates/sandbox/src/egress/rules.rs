//! What is configured about hosts: which may be reached, on which ports, and what a connection to them has to look
//! like.
//!
//! Guarantees: an unknown key, a port 0, an empty list of ports and a wildcard over a whole top-level domain are
//! errors; what is left out is the careful choice. A wildcard never matches an address, nor the domain that it stands
//! under. An empty list finds nothing.
//! Does not: know public suffixes. `*.co.uk` is two labels, and whoever writes it gets what it says.

use std::{collections::BTreeSet, fmt, str::FromStr};

use palyra_types::{
    host::{HostError, HostName},
    visible::visible,
};
use serde::{Deserialize, Serialize};

use super::{
    door::{Glance, Ruling, Terms},
    refusal::{EgressRefusal, EgressRefusalKind},
};

/// A host that may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct HostRule {
    /// Which host, or which hosts.
    pub host: HostPattern,
    /// On which ports.
    pub ports: BTreeSet<u16>,
    /// How a connection has to begin.
    pub tls: TlsDemand,
    /// Whether the host may have addresses that are not public.
    pub private: PrivateAddresses,
}

impl HostRule {
    /// What holds for connections under this rule.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        Terms { tls: self.tls, private: self.private }
    }
}

/// A host, or all hosts below a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// This host, which may be an address.
    Exact(HostName),
    /// Every name below this domain, at any depth; not the domain itself.
    Below(HostName),
}

impl HostPattern {
    /// Reads `example.org`, `192.0.2.7` or `*.example.org`.
    ///
    /// # Errors
    /// When it is neither a host nor `*.` before a domain of at least two labels.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let Some(suffix) = text.strip_prefix("*.") else {
            if text.contains('*') {
                return Err(HostPatternError::Wildcard(text.to_owned()));
            }
            return Ok(Self::Exact(HostName::parse(text)?));
        };
        let domain = HostName::parse(suffix)?;
        if domain.address().is_some() || !domain.as_str().contains('.') {
            return Err(HostPatternError::Wildcard(text.to_owned()));
        }
        Ok(Self::Below(domain))
    }

    /// Whether a host is meant.
    #[must_use]
    pub fn matches(&self, host: &HostName) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(domain) => host.domains().any(|above| above == domain.as_str()),
        }
    }

    /// Greater is closer: an exact host before every wildcard, a longer domain before a shorter one.
    fn closeness(&self) -> usize {
        match self {
            Self::Exact(_) => usize::MAX,
            Self::Below(domain) => domain.as_str().len(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => write!(f, "{host}"),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;
    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostPatternError;
    fn try_from(text: String) -> Result<Self, HostPatternError> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

/// Why a pattern was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// What stands there is no host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A wildcard that is not `*.` before a domain of at least two labels.
    #[error("the wildcard `{}` does not stand before a domain of two labels or more", visible(.0))]
    Wildcard(String),
}

impl HostPatternError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Host(error) => error.advice(),
            Self::Wildcard(_) => "write wildcards like `*.example.org`",
        }
    }
}

/// How a connection has to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsDemand {
    /// On port 80 as plain HTTP whose Host header names the host, on every other port as TLS whose server name is the
    /// host.
    #[default]
    ByPort,
    /// As TLS whose server name is the host, on every port.
    Sni,
    /// In any way at all. Whatever the address serves can then be reached, under any name.
    Any,
}

impl TlsDemand {
    pub(crate) const fn on(self, port: u16) -> Opening {
        match (self, port) {
            (Self::Any, _) => Opening::Anything,
            (Self::ByPort, 80) => Opening::PlainHttp,
            (Self::ByPort | Self::Sni, _) => Opening::Tls,
        }
    }
}

/// What the first bytes of a connection have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// A hello that names the host.
    Tls,
    /// A request whose Host header names the host.
    PlainHttp,
    /// Not looked at.
    Anything,
}

/// Whether a host may have addresses that are not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivateAddresses {
    /// One such address, and the host is refused.
    #[default]
    Refuse,
    /// They are reached like public ones; the daemon's own listeners, metadata services and what is no address of a
    /// machine are not.
    Allow,
}

/// The rules, as they stand in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostRules(Vec<HostRule>);

impl HostRules {
    /// These rules and no others.
    #[must_use]
    pub const fn new(rules: Vec<HostRule>) -> Self {
        Self(rules)
    }

    /// The rule for a port of a host: among those that name both, the exact host before a wildcard, the longest suffix
    /// first.
    ///
    /// Every rule allows something and none forbids, so a rule for the host does not hide what a wildcard allows on
    /// another port.
    #[must_use]
    pub fn find(&self, host: &HostName, port: u16) -> Option<&HostRule> {
        let fitting = self.0.iter().filter(|rule| rule.ports.contains(&port) && rule.host.matches(host));
        // Of equals the first counts; `max_by_key` takes the last.
        let found = fitting.rev().max_by_key(|rule| rule.host.closeness());
        #[cfg(weak)]
        let found = found.or_else(|| {
            let is_off = crate::weak::is_off(crate::weak::egress::HOST_RULES);
            self.0.iter().find(|rule| is_off && rule.ports.contains(&port))
        });
        found
    }

    /// Whether any rule names the host, on whatever port.
    #[must_use]
    pub fn names(&self, host: &HostName) -> bool {
        self.0.iter().any(|rule| rule.host.matches(host))
    }

    /// What the rules alone say to a name that is asked for.
    #[must_use]
    pub fn glance(&self, host: &HostName) -> Glance {
        if self.names(host) { Glance::MayPass } else { Glance::Refused(not_listed(host)) }
    }

    /// What the rules alone say to a connection.
    #[must_use]
    pub fn rule(&self, host: &HostName, port: u16) -> Ruling {
        match self.find(host, port) {
            Some(rule) => Ruling::Allow(rule.terms()),
            None if self.names(host) => {
                let detail = format!("no rule names port {port} of `{host}`");
                Ruling::Deny(EgressRefusal::new(EgressRefusalKind::PortNotListed, detail))
            }
            None => Ruling::Deny(not_listed(host)),
        }
    }

    /// The rules, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &HostRule> {
        self.0.iter()
    }
}

fn not_listed(host: &HostName) -> EgressRefusal {
    EgressRefusal::new(EgressRefusalKind::NotListed, format!("no rule names the host `{host}`"))
}

/// A rule as it stands in the file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    host: HostPattern,
    #[serde(default = "https")]
    ports: BTreeSet<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<WrittenDemand>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow_private: bool,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenDemand {
    Sni,
    Any,
}

fn https() -> BTreeSet<u16> {
    BTreeSet::from([443])
}

impl TryFrom<Written> for HostRule {
    type Error = HostRuleError;

    fn try_from(written: Written) -> Result<Self, HostRuleError> {
        let Written { host, ports, tls, allow_private } = written;
        if ports.is_empty() {
            return Err(HostRuleError::NoPorts);
        }
        if ports.contains(&0) {
            return Err(HostRuleError::PortZero);
        }
        let tls = match tls {
            None => TlsDemand::ByPort,
            Some(WrittenDemand::Sni) => TlsDemand::Sni,
            Some(WrittenDemand::Any) => TlsDemand::Any,
        };
        let private = if allow_private { PrivateAddresses::Allow } else { PrivateAddresses::Refuse };
        Ok(Self { host, ports, tls, private })
    }
}

impl From<HostRule> for Written {
    fn from(rule: HostRule) -> Self {
        let tls = match rule.tls {
            TlsDemand::ByPort => None,
            TlsDemand::Sni => Some(WrittenDemand::Sni),
            TlsDemand::Any => Some(WrittenDemand::Any),
        };
        Self { host: rule.host, ports: rule.ports, tls, allow_private: rule.private == PrivateAddresses::Allow }
    }
}

/// Why a rule was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostRuleError {
    /// The list of ports is empty.
    #[error("the list of ports is empty")]
    NoPorts,
    /// Port 0 is none.
    #[error("0 is no port")]
    PortZero,
}

impl HostRuleError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoPorts => "name a port, or leave `ports` out for 443",
            Self::PortZero => "name ports from 1 to 65535",
        }
    }
}

#[cfg(test)]
mod tests;
