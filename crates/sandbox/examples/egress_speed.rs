//! Measures what the egress of a run costs on loopback, beside a minimal relay and beside no relay at all.
//!
//! `cargo run --release -p palyra-sandbox --example egress_speed`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement stops at the first surprise and prints")]

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use palyra_sandbox::egress::{
    ConnectionRecord, Connector, Doorkeeper, EgressLimits, EgressServer, EgressSockets, Forbidden, Glance,
    PrivateAddresses, Resolve, Ruling, Terms, TlsDemand,
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

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let host = host().await;
    let relay = minimal_relay(host).await;
    let (server, proxy) = egress(host);
    let (mut throughput, mut latency) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    // Interleaved, so that a busy moment of the machine meets all alike.
    for _ in 0..ROUNDS {
        let ways = [Way::To(host), Way::To(relay), Way::Through(proxy, host)];
        for (way, (throughput, latency)) in ways.into_iter().zip(throughput.iter_mut().zip(&mut latency)) {
            throughput.push(pour(way).await);
            latency.extend(exchange(way).await);
        }
    }
    let median = |numbers: &mut Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        numbers.get(numbers.len() / 2).copied().unwrap_or_default()
    };
    let [direct, minimal, ours] = throughput.each_mut().map(median);
    println!("throughput  direct {direct:.2}, minimal relay {minimal:.2}, egress {ours:.2} GiB/s");
    println!("            egress / minimal relay = {:.0} %", 100.0 * ours / minimal);
    let [direct, minimal, ours] = latency.each_mut().map(median);
    println!(
        "latency p50 of connect and one byte back  direct {direct:.3}, minimal relay {minimal:.3}, egress {ours:.3} ms"
    );
    println!("            added by egress {:.3} ms, CONNECT included", ours - direct);
    println!("{:?}", server.finish().await);
}

#[derive(Clone, Copy)]
enum Way {
    To(SocketAddr),
    Through(SocketAddr, SocketAddr),
}

impl Way {
    async fn open(self) -> TcpStream {
        let (Self::To(address) | Self::Through(address, _)) = self;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        if let Self::Through(_, host) = self {
            let request = format!("CONNECT host.example:{} HTTP/1.1\r\n\r\n", host.port());
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut head).await.unwrap();
            }
        }
        stream
    }
}

/// Sends much and waits until the host has all of it: GiB/s.
async fn pour(way: Way) -> f64 {
    let mut stream = way.open().await;
    let piece = vec![b's'; 1 << 18];
    let began = Instant::now();
    for _ in 0..BYTES / piece.len() {
        stream.write_all(&piece).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let size = BYTES as f64 / f64::from(1 << 30);
    size / began.elapsed().as_secs_f64()
}

/// Connects and gets one byte back, many times: milliseconds.
async fn exchange(way: Way) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..EXCHANGES {
        let began = Instant::now();
        let mut stream = way.open().await;
        stream.write_all(b"e").await.unwrap();
        stream.read_u8().await.unwrap();
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

fn egress(host: SocketAddr) -> (EgressServer, SocketAddr) {
    let sockets = EgressSockets {
        dns: std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
        proxy: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        direct: Vec::new(),
    };
    let proxy = sockets.proxy.local_addr().unwrap();
    let net = Connector::new(Arc::new(One(host.ip())), Forbidden::default());
    let limits = EgressLimits { idle: Duration::from_secs(60), ..EgressLimits::default() };
    (EgressServer::start(sockets, Arc::new(Open(watch::channel(0).0)), Arc::new(net), limits).unwrap(), proxy)
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
