//! Who decides about connections, what is decided, and what is told about them afterwards.
//!
//! Guarantees: an [`Admitted`] exists only where a [`Doorkeeper`] allowed the connection, and nothing connects without
//! one.
//! Does not: decide. Whoever starts the egress of a run brings the doorkeeper.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::BoxFuture;
use palyra_types::{host::HostName, word::words};
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use super::{
    refusal::EgressRefusal,
    resolve::Share,
    rules::{PrivateAddresses, TlsDemand},
};

/// Decides about the connections of one run.
pub trait Doorkeeper: Send + Sync {
    /// What to say to somebody who asks for the address of a host. Called for every query, so it is cheap and waits for
    /// nobody.
    fn glance(&self, host: &HostName) -> Glance;

    /// Decides about a connection. May take as long as a person takes; dropped when the client goes away.
    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling>;

    /// Whether a connection that was allowed still is.
    fn still(&self, host: &HostName, port: u16) -> bool;

    /// Changes whenever an allowed connection may be allowed no more. Each live connection is then looked at again.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Takes note of a connection that has ended or was refused; called once for each. Waits for nobody, and never
    /// panics: it is called where a connection is dropped.
    fn note(&self, record: ConnectionRecord);
}

/// What is said to somebody who asks for the address of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glance {
    /// A connection to the host may be allowed, so it gets an address.
    MayPass,
    /// It will not be.
    Refused(EgressRefusal),
}

/// The decision about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// It may be made, under these terms.
    Allow(Terms),
    /// It may not.
    Deny(EgressRefusal),
}

/// What holds for an allowed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How it has to begin.
    pub tls: TlsDemand,
    /// Whether the host may have addresses that are not public.
    pub private: PrivateAddresses,
}

/// A connection that a doorkeeper allowed. There is no other way to one:
///
/// ```compile_fail
/// use palyra_sandbox::egress::{Admitted, PrivateAddresses, Terms, TlsDemand};
/// let terms = Terms { tls: TlsDemand::Any, private: PrivateAddresses::Allow };
/// let host = "example.org".parse().unwrap();
/// let admitted = Admitted { host, port: 443, terms };
/// ```
#[must_use]
#[derive(Debug)]
pub struct Admitted {
    host: HostName,
    port: u16,
    terms: Terms,
    share: Option<Share>,
}

impl Admitted {
    /// Asks for a connection.
    ///
    /// # Errors
    /// When the doorkeeper denies it.
    pub async fn ask(keeper: &dyn Doorkeeper, host: HostName, port: u16) -> Result<Self, EgressRefusal> {
        match keeper.decide(&host, port).await {
            Ruling::Allow(terms) => Ok(Self { host, port, terms, share: None }),
            Ruling::Deny(refusal) => Err(refusal),
        }
    }

    /// The same for a run, whose names are looked up in turn.
    pub(crate) fn sharing(mut self, share: &Share) -> Self {
        self.share = Some(share.clone());
        self
    }

    /// Whose turn it has to be for the name to be looked up, if anybody's.
    pub(crate) const fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &HostName {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The terms.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }
}

/// A connection that has ended or was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionRecord {
    /// The host, unless what the client named is none.
    pub host: Option<HostName>,
    /// What the client named, made visible and cut short.
    pub named: String,
    /// The port; 0 if the client did not come to name one.
    pub port: u16,
    /// How it came.
    pub via: Via,
    /// Where it led.
    pub address: Option<SocketAddr>,
    /// How it ended.
    pub outcome: ConnectionOutcome,
    /// Bytes that went to the host.
    pub sent: u64,
    /// Bytes that came from the host.
    pub received: u64,
    /// How long it took, from the first word of the client to the end.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
}

words! {
    /// How a connection came.
    pub enum Via ("way out") {
        /// The proxy's method CONNECT.
        Connect = "connect",
        /// A plain request to the proxy.
        Http = "http",
        /// SOCKS5.
        Socks5 = "socks5",
        /// A client that knows of no proxy.
        Direct = "direct",
        /// A name was asked for; no connection was made.
        Dns = "dns",
        /// The daemon itself, on behalf of a call.
        Fetch = "fetch",
    }
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionOutcome {
    /// In order, or with the run.
    Closed,
    /// It was not let through.
    Refused(EgressRefusal),
    /// It was allowed, and then no more.
    Revoked,
    /// It broke, stood idle for too long, or the client went away before it was made.
    Failed,
}

fn milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::refusal::EgressRefusalKind;

    #[test]
    fn a_record_serialises_flat_and_in_words() {
        let record = ConnectionRecord {
            host: HostName::parse("example.org").ok(),
            named: "example.org".to_owned(),
            port: 443,
            via: Via::Connect,
            address: "192.0.2.7:443".parse().ok(),
            outcome: ConnectionOutcome::Refused(EgressRefusal::new(EgressRefusalKind::NoTls, "no")),
            sent: 1,
            received: 2,
            duration: Duration::from_millis(1500),
        };
        let expected = serde_json::json!({
            "host": "example.org", "named": "example.org", "port": 443, "via": "connect", "address": "192.0.2.7:443",
            "outcome": { "refused": { "kind": "no_tls", "detail": "no" } }, "sent": 1, "received": 2, "duration_ms": 1500,
        });
        assert_eq!(serde_json::to_value(record).unwrap(), expected);
    }
}
