//! Which addresses are connected to, with resolvers that lie and a dial that only writes down.

use std::{
    net::Ipv4Addr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{net::TcpListener, sync::watch};

use super::*;
use crate::egress::{ConnectionRecord, Doorkeeper, Glance, Ruling, Terms, TlsDemand};

/// Allows everything.
struct Open(PrivateAddresses);

impl Doorkeeper for Open {
    fn glance(&self, _: &HostName) -> Glance {
        Glance::MayPass
    }

    fn decide<'a>(&'a self, _: &'a HostName, _: u16) -> BoxFuture<'a, Ruling> {
        Box::pin(async { Ruling::Allow(Terms { tls: TlsDemand::Any, private: self.0 }) })
    }

    fn still(&self, _: &HostName, _: u16) -> bool {
        true
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn note(&self, _: ConnectionRecord) {}
}

/// Answers the first query with the first list and so on; the last list stays.
struct Lists {
    lists: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Resolve for Lists {
    fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let nth = self.asked.fetch_add(1, Ordering::Relaxed).min(self.lists.len() - 1);
        Box::pin(async move { Ok(self.lists[nth].clone()) })
    }
}

/// Connects to nothing, or to one address whatever it is told, and writes down what it was told.
#[derive(Default)]
struct Notebook {
    dialled: Mutex<Vec<SocketAddr>>,
    leads_to: Option<SocketAddr>,
}

impl Dial for Notebook {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.dialled.lock().unwrap().push(address);
        Box::pin(async move {
            match self.leads_to {
                Some(there) => TcpStream::connect(there).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

struct Trial {
    resolver: Arc<Lists>,
    notebook: Arc<Notebook>,
    connector: Connector,
}

impl Trial {
    fn new(lists: &[&[&str]], forbidden: &[&str], leads_to: Option<SocketAddr>) -> Self {
        let lists = lists.iter().map(|list| list.iter().map(|text| text.parse().unwrap()).collect()).collect();
        let resolver = Arc::new(Lists { lists, asked: AtomicUsize::new(0) });
        let notebook = Arc::new(Notebook { leads_to, ..Notebook::default() });
        let forbidden = Forbidden(forbidden.iter().map(|text| text.parse().unwrap()).collect());
        let resolve: Arc<dyn Resolve> = Arc::<Lists>::clone(&resolver);
        let connector = Connector::new(resolve, forbidden).dialling_by(Arc::<Notebook>::clone(&notebook));
        Self { resolver, notebook, connector }
    }

    async fn connect(&self, host: &str, port: u16, private: PrivateAddresses) -> Result<SocketAddr, Kind> {
        let host = HostName::parse(host).unwrap();
        let admitted = Admitted::ask(&Open(private), host, port).await.unwrap();
        self.connector.connect(&admitted).await.map(|connected| connected.address).map_err(|refusal| refusal.kind)
    }

    fn dialled(&self) -> Vec<String> {
        self.notebook.dialled.lock().unwrap().iter().map(SocketAddr::to_string).collect()
    }
}

use PrivateAddresses::{Allow, Refuse};

#[tokio::test]
async fn addresses_that_are_not_public_are_never_dialled() {
    for address in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "198.18.0.1",
        "0.0.0.0",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "fd00:ec2::254",
        "2002:7f00:1::",
    ] {
        let trial = Trial::new(&[&[address]], &[], None);
        assert_eq!(trial.connect("a.example.org", 443, Refuse).await, Err(Kind::PrivateAddress), "{address}");
        assert_eq!(trial.dialled(), [""; 0], "{address}");
    }
}

#[tokio::test]
async fn an_address_for_a_host_is_judged_like_any_other_and_resolved_by_nobody() {
    let trial = Trial::new(&[&["8.8.8.8"]], &[], None);
    assert_eq!(trial.connect("10.0.0.1", 443, Refuse).await, Err(Kind::PrivateAddress));
    assert_eq!(trial.connect("::ffff:10.0.0.1", 443, Refuse).await, Err(Kind::PrivateAddress));
    assert_eq!(trial.connect("1.1.1.1", 443, Refuse).await, Err(Kind::Unreachable));
    assert_eq!(trial.dialled(), ["1.1.1.1:443"]);
    assert_eq!(trial.resolver.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_what_was_found_is_pinned() {
    let trial = Trial::new(&[&["1.1.1.1", "2606:4700::1"], &["127.0.0.1"]], &[], None);
    assert_eq!(trial.connect("rebinding.example.org", 443, Refuse).await, Err(Kind::Unreachable));
    assert_eq!(trial.resolver.asked.load(Ordering::Relaxed), 1);
    assert_eq!(trial.dialled(), ["1.1.1.1:443", "[2606:4700::1]:443"]);
    assert_eq!(trial.connect("rebinding.example.org", 443, Refuse).await, Err(Kind::PrivateAddress));
    assert_eq!(trial.dialled().len(), 2);
}

#[tokio::test]
async fn one_bad_address_spoils_the_good_ones() {
    for list in [["1.1.1.1", "127.0.0.1"], ["10.0.0.1", "1.1.1.1"], ["1.1.1.1", "64:ff9b::127.0.0.1"]] {
        let trial = Trial::new(&[&list], &[], None);
        assert_eq!(trial.connect("a.example.org", 443, Refuse).await, Err(Kind::PrivateAddress), "{list:?}");
        assert_eq!(trial.dialled(), [""; 0]);
    }
}

#[tokio::test]
async fn a_rule_for_private_addresses_does_not_reach_what_is_not_private() {
    for address in
        ["169.254.169.254", "64:ff9b::169.254.169.254", "0.0.0.0", "224.0.0.1", "2002:7f00:1::", "168.63.129.16"]
    {
        let trial = Trial::new(&[&[address]], &[], None);
        assert_eq!(trial.connect("a.example.org", 80, Allow).await, Err(Kind::PrivateAddress), "{address}");
        assert_eq!(trial.dialled(), [""; 0]);
    }
    let trial = Trial::new(&[&["10.0.0.1", "fd00::1", "1.1.1.1"]], &[], None);
    assert_eq!(trial.connect("a.example.org", 80, Allow).await, Err(Kind::Unreachable));
    assert_eq!(trial.dialled(), ["10.0.0.1:80", "[fd00::1]:80", "1.1.1.1:80"]);
    // Whoever writes the address of a metadata service into a rule means it.
    assert_eq!(trial.connect("169.254.169.254", 80, Allow).await, Err(Kind::Unreachable));
    assert_eq!(trial.connect("169.254.169.254", 80, Refuse).await, Err(Kind::PrivateAddress));
}

#[tokio::test]
async fn a_socket_that_leads_elsewhere_is_not_used() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = elsewhere.local_addr().unwrap();
    let trial = Trial::new(&[&["1.1.1.1"]], &[], Some(address));
    assert_eq!(trial.connect("a.example.org", address.port(), Refuse).await, Err(Kind::PrivateAddress));
    assert_eq!(trial.connect("a.example.org", address.port(), Allow).await, Err(Kind::PrivateAddress));
    let honest = Trial::new(&[&["127.0.0.1"]], &[], Some(address));
    assert_eq!(honest.connect("a.example.org", address.port(), Allow).await, Ok(address));
}

#[tokio::test]
async fn the_daemons_listeners_are_never_reached() {
    for (listener, target) in [
        ("127.0.0.1:7143", "127.0.0.1"),
        ("127.0.0.1:7143", "127.0.0.9"),
        ("127.0.0.1:7143", "::1"),
        ("127.0.0.1:7143", "::ffff:127.0.0.1"),
        ("127.0.0.1:7143", "64:ff9b::127.0.0.1"),
        ("127.0.0.1:7143", "0.0.0.0"),
        ("127.0.0.1:7143", "::"),
        ("0.0.0.0:7143", "127.0.0.1"),
        ("[::]:7143", "127.0.0.1"),
        ("192.0.2.7:7143", "192.0.2.7"),
        ("192.0.2.7:7143", "127.0.0.1"),
        ("8.8.8.8:7143", "8.8.8.8"),
    ] {
        let trial = Trial::new(&[&[target]], &[listener], None);
        assert_eq!(trial.connect("a.example.org", 7143, Allow).await, Err(Kind::OwnListener), "{listener} {target}");
        assert_eq!(trial.connect(target, 7143, Allow).await, Err(Kind::OwnListener), "{listener} {target}");
        assert_eq!(trial.dialled(), [""; 0]);
    }
    let trial = Trial::new(&[&["127.0.0.1"]], &["127.0.0.1:7143"], None);
    assert_eq!(trial.connect("a.example.org", 7144, Allow).await, Err(Kind::Unreachable));
}

#[tokio::test]
async fn every_address_of_this_machine_leads_to_its_listeners() {
    // Whichever address this machine uses to reach others; none in a network namespace without routes.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let Some(own) = socket.connect("192.0.2.1:9").ok().and_then(|()| socket.local_addr().ok()) else { return };
    let forbidden = Forbidden(vec!["0.0.0.0:7143".parse().unwrap()]);
    assert!(forbidden.holds(SocketAddr::new(own.ip(), 7143)));
    assert!(!forbidden.holds("192.0.2.1:7143".parse().unwrap()));
}

#[tokio::test]
async fn a_name_without_an_address_and_a_silent_resolver_are_told_apart() {
    struct Silent;
    impl Resolve for Silent {
        fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }
    let admitted = || async {
        let host = HostName::parse("a.example.org").unwrap();
        Admitted::ask(&Open(Refuse), host, 443).await.unwrap()
    };
    let nowhere = Trial::new(&[&[]], &[], None);
    let refusal = nowhere.connector.connect(&admitted().await).await.unwrap_err();
    assert_eq!(refusal.kind, Kind::Unresolvable);
    let silent = Connector::new(Arc::new(Silent), Forbidden::default()).waiting(Duration::from_millis(20));
    let refusal = silent.connect(&admitted().await).await.unwrap_err();
    assert_eq!(refusal.kind, Kind::TooSlow);
}

#[tokio::test]
async fn a_run_with_too_many_names_looked_up_is_told_so_and_nobody_else_minds() {
    /// Never finds anything whose name says so.
    struct Slow;
    impl Resolve for Slow {
        fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(async move {
                if host.as_str().starts_with("slow") {
                    std::future::pending::<()>().await;
                }
                Ok(vec![IpAddr::from([192, 0, 2, 7])])
            })
        }
    }
    let connector = Arc::new(Connector::new(Arc::new(Slow), Forbidden::default()).waiting(Duration::from_millis(200)));
    let (one, other) = (Share::new(2), Share::new(2));
    let connect = |name: &'static str, share: Option<Share>| {
        let connector = Arc::clone(&connector);
        async move {
            let admitted = Admitted::ask(&Open(Refuse), HostName::parse(name).unwrap(), 443).await.unwrap();
            let admitted = match &share {
                Some(share) => admitted.sharing(share),
                None => admitted,
            };
            connector.connect(&admitted).await.map(drop).map_err(|refusal| refusal.kind)
        }
    };
    let slow = [connect("slow-1.example", Some(one.clone())), connect("slow-2.example", Some(one.clone()))];
    let slow = slow.map(tokio::spawn);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (waits, of_another, of_the_daemon) = tokio::join!(
        timeout(Duration::from_millis(100), connect("quick.example", Some(one.clone()))),
        connect("quick.example", Some(other)),
        connect("quick.example", None),
    );
    assert!(waits.is_err());
    assert_eq!([of_another, of_the_daemon], [Err(Kind::PrivateAddress); 2]);
    for slow in slow {
        assert_eq!(slow.await.unwrap(), Err(Kind::TooSlow));
    }
    // Whoever waits gets a turn that ends in time, and is refused if none does.
    assert_eq!(connect("quick.example", Some(one.clone())).await, Err(Kind::PrivateAddress));
    let _turns = (one.turn().await, one.turn().await);
    assert_eq!(connect("quick.example", Some(one)).await, Err(Kind::TooManyLookups));
}
