//! Measures what the egress of a run costs on loopback, beside a minimal relay and beside no relay at all.
//!
//! `cargo run --release -p palyra-sandbox --example egress_speed`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement stops at the first surprise and prints")]

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream as Socket},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use palyra_sandbox::egress::{
    ConnectionRecord, Connector, Doorkeeper, EgressLimits, EgressServer, EgressSockets, Forbidden, Glance,
    PrivateAddresses, Resolve, Ruling, SyntheticRange, Terms, TlsDemand,
};
use palyra_types::HostName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

const ROUNDS: usize = 5;
const BYTES: usize = 1 << 30;
const EXCHANGES: usize = 400;

fn main() {
    // The client is this thread, the host is another, and what is measured has two threads of its own.
    let far = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let between = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let host = far.block_on(host());
    let relay = between.block_on(minimal_relay(host));
    let (server, proxy, direct) = between.block_on(egress(host));
    let (mut throughput, mut latency) = ([const { Vec::new() }; 4], [const { Vec::new() }; 4]);
    // Interleaved, so that a busy moment of the machine meets all alike.
    for _ in 0..ROUNDS {
        let ways = [Way::To(host), Way::To(relay), Way::To(direct), Way::Through(proxy, host)];
        for (way, (throughput, latency)) in ways.into_iter().zip(throughput.iter_mut().zip(&mut latency)) {
            throughput.push(pour(way));
            latency.extend(exchange(way));
        }
    }
    let median = |numbers: &mut Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        numbers.get(numbers.len() / 2).copied().unwrap_or_default()
    };
    let [bare, minimal, direct, proxied] = throughput.each_mut().map(median);
    println!(
        "throughput in GiB/s: no relay {bare:.2}, minimal relay {minimal:.2}, direct {direct:.2}, CONNECT {proxied:.2}"
    );
    println!(
        "  of the minimal relay: direct {:.0} %, CONNECT {:.0} %",
        100.0 * direct / minimal,
        100.0 * proxied / minimal
    );
    let [bare, minimal, direct, proxied] = latency.each_mut().map(median);
    println!(
        "connect and one byte back, p50 in ms: no relay {bare:.3}, minimal relay {minimal:.3}, direct {direct:.3}, CONNECT {proxied:.3}"
    );
    println!("  added to no relay: direct {:.3}, CONNECT {:.3}", direct - bare, proxied - bare);
    println!("  added to the minimal relay: direct {:.3}, CONNECT {:.3}", direct - minimal, proxied - minimal);
    println!("{:?}", between.block_on(server.finish()));
}

#[derive(Clone, Copy)]
enum Way {
    To(SocketAddr),
    Through(SocketAddr, SocketAddr),
}

impl Way {
    fn open(self) -> Socket {
        let (Self::To(address) | Self::Through(address, _)) = self;
        let mut stream = Socket::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        if let Self::Through(_, host) = self {
            let request = format!("CONNECT host.example:{} HTTP/1.1\r\n\r\n", host.port());
            stream.write_all(request.as_bytes()).unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
        }
        stream
    }
}

/// Sends much and waits until the host has all of it: GiB/s.
fn pour(way: Way) -> f64 {
    let mut stream = way.open();
    let piece = vec![b's'; 1 << 18];
    let began = Instant::now();
    for _ in 0..BYTES / piece.len() {
        stream.write_all(&piece).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let size = BYTES as f64 / f64::from(1 << 30);
    size / began.elapsed().as_secs_f64()
}

/// Connects and gets one byte back, many times: milliseconds.
fn exchange(way: Way) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..EXCHANGES {
        let began = Instant::now();
        let mut stream = way.open();
        stream.write_all(b"e").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times
}

/// Answers a first byte `e`, and swallows everything else.
async fn host() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 18];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    if read == 1 && buffer.first() == Some(&b'e') {
                        let _ = stream.write_all(b"e").await;
                    }
                }
            });
        }
    });
    address
}

/// Accepts, connects, copies with the same buffers, and does nothing else.
async fn minimal_relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut host = TcpStream::connect(to).await.unwrap();
                let _ = (client.set_nodelay(true), host.set_nodelay(true));
                let _ = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut host, 1 << 18, 1 << 18).await;
            });
        }
    });
    address
}

/// The egress, where its proxy is, and where the host is for those who know of no proxy.
async fn egress(host: SocketAddr) -> (EgressServer, SocketAddr, SocketAddr) {
    let direct = SocketAddr::from(([127, 18, 0, 1], host.port()));
    let sockets = EgressSockets {
        dns: std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
        proxy: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        direct: vec![std::net::TcpListener::bind(direct).unwrap()],
    };
    let (proxy, dns) = (sockets.proxy.local_addr().unwrap(), sockets.dns.local_addr().unwrap());
    let net = Connector::new(Arc::new(One(host.ip())), Forbidden::default());
    let synthetic = SyntheticRange::new([127, 18, 0, 0].into(), 16).unwrap();
    let limits = EgressLimits { idle: Duration::from_secs(60), synthetic, ..EgressLimits::default() };
    let server = EgressServer::start(sockets, Arc::new(Open(watch::channel(0).0)), Arc::new(net), limits).unwrap();
    // The first name that is asked for gets the first address.
    let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let question = [&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4][..], b"host", &[7], b"example", &[0, 0, 1, 0, 1]].concat();
    client.send_to(&question, dns).await.unwrap();
    client.recv(&mut [0; 512]).await.unwrap();
    (server, proxy, direct)
}

struct One(IpAddr);

impl Resolve for One {
    fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![self.0]) })
    }
}

struct Open(watch::Sender<u64>);

impl Doorkeeper for Open {
    fn glance(&self, _: &HostName) -> Glance {
        Glance::MayPass
    }

    fn decide<'a>(&'a self, _: &'a HostName, _: u16) -> BoxFuture<'a, Ruling> {
        Box::pin(async { Ruling::Allow(Terms { tls: TlsDemand::Any, private: PrivateAddresses::Allow }) })
    }

    fn still(&self, _: &HostName, _: u16) -> bool {
        true
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn note(&self, _: ConnectionRecord) {}
}
