//! What all connections of one run share, and the one way to a ruling about each.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use palyra_types::host::HostName;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{
    connect::{Connected, Connector},
    conversation::Reader,
    door::{Admitted, Doorkeeper},
    intercept::Interception,
    ledger::{Entry, Ledger, Stop},
    lobby::Lobby,
    names::{Names, SyntheticRange},
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
    resolve::Share,
    rules::Opening,
};

/// How much the egress of one run may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLimits {
    /// Connections at the same time, those that are being decided about included.
    pub concurrent: usize,
    /// Connections that may wait for one of these to end.
    pub queued: usize,
    /// Clients that may have connected and not yet said where to.
    pub half_open: usize,
    /// Clients altogether, and requests altogether.
    pub total: u64,
    /// How long a client may take to say what it wants.
    pub handshake: Duration,
    /// How long its words may be, in bytes.
    pub header_bytes: usize,
    /// How many bytes of a body are collected where its length changes on the way.
    pub collected_bytes: usize,
    /// How much is noted that reached nobody. What exceeds it is counted.
    pub notes: u64,
    /// How long a connection may stand idle.
    pub idle: Duration,
    /// How many names may have an address.
    pub names: usize,
    /// How many names may be looked up at once.
    pub lookups: usize,
    /// Where these addresses are taken from.
    pub synthetic: SyntheticRange,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            concurrent: 64,
            queued: 64,
            half_open: 128,
            total: 10_000,
            handshake: Duration::from_secs(10),
            header_bytes: 16 << 10,
            collected_bytes: 8 << 20,
            notes: 256,
            idle: Duration::from_secs(600),
            names: 4096,
            lookups: 4,
            synthetic: SyntheticRange::BENCHMARKING,
        }
    }
}

impl EgressLimits {
    /// For a program that runs for as long as somebody speaks with it: how many connections it makes altogether says nothing about it.
    #[must_use]
    pub fn for_long() -> Self {
        Self { total: u64::MAX, ..Self::default() }
    }
}

/// One run.
pub(crate) struct Run {
    pub keeper: Arc<dyn Doorkeeper>,
    pub net: Arc<Connector>,
    pub limits: EgressLimits,
    pub names: Names,
    pub ledger: Arc<Ledger>,
    pub lobby: Arc<Lobby>,
    /// Who looks into its connections.
    interception: Option<Arc<Interception>>,
    /// The names that are looked up for it at once.
    lookups: Share,
    /// Where the proxy listens, as the program sees it.
    proxy: SocketAddr,
    asked: AtomicU64,
}

impl Run {
    pub(crate) fn new(
        keeper: Arc<dyn Doorkeeper>,
        net: Arc<Connector>,
        limits: EgressLimits,
        proxy: SocketAddr,
        interception: Option<Interception>,
    ) -> Self {
        Self {
            names: Names::new(limits.synthetic, limits.names),
            ledger: Arc::new(Ledger::new(Arc::clone(&keeper), limits.notes)),
            lobby: Arc::new(Lobby::new(&limits)),
            lookups: Share::new(limits.lookups),
            asked: AtomicU64::new(0),
            interception: interception.map(Arc::new),
            keeper,
            net,
            limits,
            proxy,
        }
    }

    /// Counts one more thing that the program wants.
    pub(crate) fn count(&self) -> Result<(), EgressRefusal> {
        if self.asked.fetch_add(1, Ordering::Relaxed) < self.limits.total {
            return Ok(());
        }
        let detail = format!("the run has asked for {} connections", self.limits.total);
        Err(EgressRefusal::new(Kind::TooManyConnections, detail))
    }

    /// Has a connection ruled on. Nothing was resolved or connected to before.
    pub(crate) async fn admit(&self, entry: &mut Entry, host: HostName, port: u16) -> Result<Passage, EgressRefusal> {
        // Clients that resolve names themselves give the proxy the address that they were told.
        let host = host.address().and_then(|address| self.names.name_of(address)).unwrap_or(host);
        entry.meant(&host, port);
        let is_proxy = self.is_proxy(&host, port);
        #[cfg(weak)]
        let is_proxy = is_proxy && !crate::weak::is_off(crate::weak::egress::OWN_LISTENERS);
        if is_proxy {
            return Err(EgressRefusal::new(Kind::OwnListener, format!("port {port} of `{host}` is the proxy itself")));
        }
        let place = self.lobby.place().await?;
        // INVARIANT: changes are watched from before the ruling on, so none falls between the two.
        let mut changes = self.keeper.changes();
        changes.mark_unchanged();
        let admitted = Admitted::ask(&*self.keeper, host, port).await?.sharing(&self.lookups);
        Ok(Passage { admitted, live: Live { keeper: Arc::clone(&self.keeper), changes }, place })
    }

    /// Who reads what passes on an admitted connection, if anybody does.
    pub(crate) fn reader_of(&self, to: &Admitted) -> Option<Reader> {
        let interception = self.interception.as_ref()?;
        if interception.interceptor.intercepts(to.host(), to.port()) {
            return Some(Reader::Inside(Arc::clone(interception)));
        }
        let is_plain = to.terms().tls.on(to.port()) == Opening::PlainHttp;
        is_plain.then(|| Reader::Plain(Arc::clone(interception)))
    }

    /// Who looks into connections of this run, if anybody does.
    pub(crate) const fn interception(&self) -> Option<&Arc<Interception>> {
        self.interception.as_ref()
    }

    /// What an admitted connection leads to.
    async fn reach(&self, to: &Admitted) -> Result<Upstream, EgressRefusal> {
        match self.reader_of(to) {
            Some(reader) => Ok(Upstream::Reader(reader)),
            None => self.net.connect(to).await.map(Upstream::Host),
        }
    }

    /// [`Run::admit`], then [`Run::reach`] as long as it stays allowed.
    pub(crate) async fn pass(&self, entry: &mut Entry, host: HostName, port: u16) -> Result<(Passage, Upstream), Stop> {
        let mut passage = self.admit(entry, host, port).await?;
        let (to, live) = (&passage.admitted, &mut passage.live);
        let upstream = tokio::select! {
            biased;
            () = live.revoked(to) => return Err(Stop::Revoked),
            reached = self.reach(to) => reached?,
        };
        if let Upstream::Host(connected) = &upstream {
            entry.address = Some(connected.address);
        }
        Ok((passage, upstream))
    }

    fn is_proxy(&self, host: &HostName, port: u16) -> bool {
        let is_here = |address: std::net::IpAddr| address.is_loopback() || address.is_unspecified();
        let is_named_so = host.as_str() == "localhost" || host.as_str().ends_with(".localhost");
        port == self.proxy.port() && host.address().map_or(is_named_so, is_here)
    }
}

/// The end of a connection that is not the client.
pub(crate) enum Upstream {
    /// The host.
    Host(Connected),
    /// The daemon itself, which reads requests and passes them on.
    Reader(Reader),
}

/// A connection that was allowed, with its place among the others.
pub(crate) struct Passage {
    pub admitted: Admitted,
    pub live: Live,
    /// Held until the connection ends.
    pub place: OwnedSemaphorePermit,
}

/// Watches whether a connection still is allowed.
pub(crate) struct Live {
    keeper: Arc<dyn Doorkeeper>,
    changes: watch::Receiver<u64>,
}

impl Live {
    /// Waits until the connection is allowed no more.
    pub(crate) async fn revoked(&mut self, admitted: &Admitted) {
        while self.changes.changed().await.is_ok() {
            if !self.keeper.still(admitted.host(), admitted.port()) {
                return;
            }
        }
        // Nobody is left who could change anything.
        std::future::pending().await
    }
}
