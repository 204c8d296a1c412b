//! The only way out: from an allowed connection to a socket.
//!
//! The order is always the same. The doorkeeper has ruled; then the name is resolved, once; then every address is
//! judged; then one of exactly these addresses is connected to; then the peer of the socket is compared with it and
//! judged once more.
//!
//! Guarantees: a name is never asked of any resolver before it was allowed. A name with a single unacceptable address
//! is refused whole: if only the bad ones were dropped, whoever controls the name could mix them in and wait for the
//! good ones to fail. No connection reaches one of the daemon's own listeners, and none goes to a metadata service that
//! is not named by its address, whatever the rule says about private addresses.
//! Does not: look at what is sent.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use palyra_types::host::HostName;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    address::{NotPublic, embedded, is_public},
    door::{Admitted, Terms},
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
    resolve::{Resolve, Share},
    rules::PrivateAddresses,
};

/// Connects to hosts on behalf of runs.
pub struct Connector {
    resolver: Arc<dyn Resolve>,
    forbidden: Forbidden,
    dial: Arc<dyn Dial>,
    patience: Duration,
    room: Arc<Semaphore>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("forbidden", &self.forbidden).finish_non_exhaustive()
    }
}

impl Connector {
    /// A connector that finds hosts by `resolver` and never reaches `forbidden`.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolve>, forbidden: Forbidden) -> Self {
        Self {
            resolver,
            forbidden,
            dial: Arc::new(SystemDial),
            patience: Duration::from_secs(10),
            room: Arc::new(Semaphore::new(ROOM)),
        }
    }

    /// With another way to open sockets.
    #[must_use]
    pub fn dialling_by(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dial = dial;
        self
    }

    /// With another time-out for a resolution and for each attempt to connect.
    #[must_use]
    pub const fn waiting(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// With room for so many clients of all runs together. Each takes up to two descriptors of the daemon.
    #[must_use]
    pub fn with_room(mut self, clients: usize) -> Self {
        self.room = Arc::new(Semaphore::new(clients.min(ROOM)));
        self
    }

    /// Waits until there is room for one more client, and keeps it.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Why an address is out of reach under these terms, whoever says yes to it. Of a name that is not known before it is resolved.
    #[must_use]
    pub fn objection(&self, host: &HostName, port: u16, terms: Terms) -> Option<EgressRefusal> {
        let address = SocketAddr::new(host.address()?.to_canonical(), port);
        self.judge(address, host, terms.private).err()
    }

    /// The addresses of a host, for whoever only compares them.
    pub(crate) async fn look_up(&self, host: &HostName, share: &Share) -> io::Result<Vec<IpAddr>> {
        if let Some(address) = host.address() {
            return Ok(vec![address]);
        }
        match timeout(self.patience, share.turn()).await? {
            Some(turn) => self.resolver.resolve_in_turn(host, turn).await,
            None => Ok(Vec::new()),
        }
    }

    /// Connects to an admitted host.
    ///
    /// # Errors
    /// When the host has no address, one that it may not have, or none that answers.
    pub async fn connect(&self, to: &Admitted) -> Result<Connected, EgressRefusal> {
        let pinned = self.addresses(to).await?;
        let mut last = EgressRefusal::new(Kind::Unreachable, format!("`{}` has no address", to.host()));
        for address in pinned {
            last = match timeout(self.patience, self.dial.dial(address)).await {
                Ok(Ok(stream)) => return self.look_again(stream, address, to),
                Ok(Err(error)) => {
                    EgressRefusal::new(Kind::Unreachable, format!("`{}` at {address}: {error}", to.host()))
                }
                Err(_) => EgressRefusal::new(Kind::TooSlow, format!("`{}` at {address} does not answer", to.host())),
            };
        }
        Err(last)
    }

    /// The addresses that may be connected to. All others of the host are acceptable, too, or there is none.
    async fn addresses(&self, to: &Admitted) -> Result<Vec<SocketAddr>, EgressRefusal> {
        let found = match to.host().address() {
            Some(address) => vec![address],
            None => self.resolve(to.host(), to.share()).await?,
        };
        let judged = found.into_iter().map(|address| {
            // A mapped address is connected to as what it leads to, so that it is judged, compared and recorded as
            // that.
            let address = SocketAddr::new(address.to_canonical(), to.port());
            self.judge(address, to.host(), to.terms().private).map(|()| address)
        });
        let mut pinned = judged.collect::<Result<Vec<_>, _>>()?;
        pinned.truncate(MOST_ATTEMPTS);
        Ok(pinned)
    }

    async fn resolve(&self, host: &HostName, share: Option<&Share>) -> Result<Vec<IpAddr>, EgressRefusal> {
        let unresolvable =
            |why: &dyn std::fmt::Display| EgressRefusal::new(Kind::Unresolvable, format!("`{host}`: {why}"));
        let until = Instant::now() + self.patience;
        let look_up = match share {
            None => self.resolver.resolve(host),
            Some(share) => {
                let turn = timeout_at(until, share.turn()).await.ok().flatten().ok_or_else(|| {
                    let detail = format!("the run has as many names looked up as it may, so `{host}` was not");
                    EgressRefusal::new(Kind::TooManyLookups, detail)
                })?;
                self.resolver.resolve_in_turn(host, turn)
            }
        };
        match timeout_at(until, look_up).await {
            Ok(Ok(found)) if found.is_empty() => Err(unresolvable(&"the name has no address")),
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(unresolvable(&error)),
            Err(_) => Err(EgressRefusal::new(Kind::TooSlow, format!("the name service does not answer for `{host}`"))),
        }
    }

    fn judge(&self, address: SocketAddr, host: &HostName, private: PrivateAddresses) -> Result<(), EgressRefusal> {
        let is_own = self.forbidden.holds(address);
        #[cfg(weak)]
        let is_own = is_own && !crate::weak::is_off(crate::weak::egress::OWN_LISTENERS);
        if is_own {
            let detail = format!("{address} is a listener of the daemon");
            return Err(EgressRefusal::new(Kind::OwnListener, detail));
        }
        let Err(reason) = is_public(address.ip()) else { return Ok(()) };
        #[cfg(weak)]
        if crate::weak::is_off(crate::weak::egress::PRIVATE_ADDRESSES) {
            return Ok(());
        }
        let is_meant = match private {
            PrivateAddresses::Refuse => false,
            // SECURITY: a name that may have private addresses could be pointed at the machine's credentials. An
            // address is only itself.
            PrivateAddresses::Allow if reason == NotPublic::Metadata => host.address() == Some(address.ip()),
            PrivateAddresses::Allow => reason.is_private(),
        };
        if is_meant {
            return Ok(());
        }
        Err(EgressRefusal::new(Kind::PrivateAddress, format!("`{host}` leads to {}, which {reason}", address.ip())))
    }

    /// What the socket is connected to is what was pinned, and it still is acceptable.
    fn look_again(&self, stream: TcpStream, pinned: SocketAddr, to: &Admitted) -> Result<Connected, EgressRefusal> {
        let unreachable = |error: io::Error| EgressRefusal::new(Kind::Unreachable, format!("`{}`: {error}", to.host()));
        let peer = stream.peer_addr().map_err(unreachable)?;
        let address = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        self.judge(address, to.host(), to.terms().private)?;
        if address != pinned {
            let detail = format!("`{}` was pinned to {pinned} and is connected to {address}", to.host());
            return Err(EgressRefusal::new(Kind::PrivateAddress, detail));
        }
        // Whoever measures a small exchange waits for Nagle otherwise.
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(Connected { stream, address })
    }
}

/// A connection to a host.
#[derive(Debug)]
pub struct Connected {
    /// The socket.
    pub stream: TcpStream,
    /// Where it leads.
    pub address: SocketAddr,
}

/// The daemon's own listeners, which nothing that runs may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forbidden(pub Vec<SocketAddr>);

impl Forbidden {
    /// Whether an address leads to one of the listeners, or may.
    ///
    /// A listener's port counts on its own address and on every address of this machine: one that is bound to `0.0.0.0`
    /// answers on all of them, and what is bound to one of them may be redirected to from another.
    #[must_use]
    pub fn holds(&self, address: SocketAddr) -> bool {
        let ips = [Some(address.ip().to_canonical()), embedded(address.ip()).map(IpAddr::V4)];
        let leads_to = |listener: &SocketAddr| {
            let of_listener = listener.ip().to_canonical();
            listener.port() == address.port()
                && ips.iter().flatten().any(|&ip| ip == of_listener || ip.is_unspecified() || is_own(ip))
        };
        self.0.iter().any(leads_to)
    }
}

/// Whether an address belongs to this machine: a socket can be bound to it.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Opens sockets.
pub trait Dial: Send + Sync {
    /// Connects to this address and no other.
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// The kernel's way.
#[derive(Debug, Clone, Copy)]
pub struct SystemDial;

impl Dial for SystemDial {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

/// How many clients there is room for, unless somebody knows better.
const ROOM: usize = 1 << 16;

/// How many addresses of a host are tried.
const MOST_ATTEMPTS: usize = 6;

#[cfg(test)]
mod tests;
