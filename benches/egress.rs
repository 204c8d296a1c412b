//! What strict egress costs: a program in an enclosure reaches a host on loopback through the daemon, next to the same program with the machine's
//! network, and with the machine's network and a relay that does nothing but copy. A missed target ends the program with an error.
//!
//! Everything is as in life: real enclosures, policy asked about each connection, each connection in the journal. The program that measures is
//! this one, started as `client` inside.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement that cannot be set up ends"
)]

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use palyra_benches::{
    judge, median, millis,
    place::{Place, PlacePlan, directory},
};
use palyra_gate::Output;
use palyra_tests::scripted::Names;
use serde_json::json;

const ROUNDS: usize = 7;
const BYTES: usize = 1 << 30;
const EXCHANGES: usize = 300;
const NAME: &str = "host.bench.test";

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "client", what, via, target] => {
            client(what, via, target);
            std::process::ExitCode::SUCCESS
        }
        _ => measure(),
    }
}

fn measure() -> std::process::ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let host = host();
    let relay = runtime.block_on(relay(host));
    let home = directory();
    let program = home.path().join("program");
    fs::create_dir(&program).expect("a directory");
    fs::copy(std::env::current_exe().expect("this program"), program.join("client")).expect("a copy");
    for path in [program.clone(), program.join("client")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is mine");
    }
    let [open, strict] = ["none", "strict"].map(|egress| {
        let config = format!(
            "[sandbox]\nplans = [{{ tier = \"c\", egress = \"{egress}\" }}]\nread_only = [\"{}\"]\n\
             [[egress.host]]\nhost = \"{NAME}\"\nports = [{}]\nallow_private = true\ntls = \"any\"\n",
            program.display(),
            host.port()
        );
        let net = Some(Names::default().with(NAME, "127.0.0.1").connector());
        runtime.block_on(Place::open(PlacePlan {
            directory: &home.path().join(egress),
            journal: None,
            config: &config,
            net,
        }))
    });
    let named = format!("{NAME}:{}", host.port());
    let ways = [
        ("the machine's network", &open, "directly", host.to_string()),
        ("  and a relay that copies", &open, "directly", relay.to_string()),
        ("strict, by its address", &strict, "directly", named.clone()),
        ("strict, by the proxy", &strict, "proxied", named),
    ];
    let ask = |place: &Place, what: &str, via: &str, target: &str| {
        let command = [program.join("client").to_string_lossy().into_owned(), "client".to_owned()];
        let command: Vec<String> = command.into_iter().chain([what, via, target].map(str::to_owned)).collect();
        let done = runtime.block_on(place.call("process.run", json!({ "command": command })));
        let Output::Process { stdout, stderr, .. } = &done.output else { unreachable!("a program ran") };
        let said = String::from_utf8_lossy(&stdout.bytes);
        said.trim().parse::<f64>().unwrap_or_else(|_| unreachable!("{said} {}", String::from_utf8_lossy(&stderr.bytes)))
    };
    // Interleaved, so that a busy moment of the machine meets all alike.
    let mut figures: [[Vec<f64>; 2]; 4] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, place, via, target), [throughput, latency]) in ways.iter().zip(&mut figures) {
            throughput.push(ask(place, "pour", via, target));
            latency.push(ask(place, "exchange", via, target));
        }
    }
    let figures = figures.map(|both| both.map(middle));
    let ([direct, direct_latency], [copied, _]) = (figures[0], figures[1]);
    println!("{:<28}{:>12}{:>18}{:>22}{:>18}", "", "GiB/s", "of the relay", "connect + 1 byte", "more than none");
    for ((name, ..), [throughput, latency]) in ways.iter().zip(figures) {
        let (of_relay, more) = (throughput / copied, latency - direct_latency);
        println!("{name:<28}{throughput:>12.2}{of_relay:>18.2}{latency:>19.3} ms{more:>15.3} ms");
    }
    println!("the relay has {:.2} of what there is without one", copied / direct);
    let [.., [by_address, address_latency], [by_proxy, proxy_latency]] = figures;
    judge(&[
        ("throughput by address is at least 0.8 of a relay that copies", by_address >= 0.8 * copied),
        ("throughput by the proxy is at least 0.8 of a relay that copies", by_proxy >= 0.8 * copied),
        (
            "a connection by address takes at most 0.5 ms more than a direct one",
            address_latency - direct_latency <= 0.5,
        ),
        (
            "a connection by the proxy takes at most 0.5 ms more than a direct one",
            proxy_latency - direct_latency <= 0.5,
        ),
    ])
}

/// What runs in the enclosure: prints one figure.
fn client(what: &str, via: &str, target: &str) {
    let address = match via {
        "proxied" => SocketAddr::from(([127, 0, 0, 1], 3128)),
        _ => target.to_socket_addrs().expect("a name that is known").next().expect("an address"),
    };
    let open = || {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("it is mine");
        if via == "proxied" {
            write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").expect("a proxy");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).expect("an answer");
                head.extend(byte);
            }
            assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        }
        stream
    };
    match what {
        "pour" => println!("{}", pour(open())),
        _ => {
            let times = (0..EXCHANGES).map(|_| exchange(&open)).collect();
            println!("{}", millis(median(times)));
        }
    }
}

/// Sends much and waits until the host has all of it: GiB/s.
fn pour(mut stream: TcpStream) -> f64 {
    let piece = vec![b's'; 1 << 18];
    let begun = Instant::now();
    for _ in 0..BYTES / piece.len() {
        stream.write_all(&piece).expect("it takes it");
    }
    stream.shutdown(Shutdown::Write).expect("it is mine");
    stream.read_to_end(&mut Vec::new()).expect("an end");
    BYTES as f64 / f64::from(1 << 30) / begun.elapsed().as_secs_f64()
}

/// Connects and gets one byte back.
fn exchange(open: &impl Fn() -> TcpStream) -> Duration {
    let begun = Instant::now();
    let mut stream = open();
    stream.write_all(b"e").expect("it takes it");
    stream.read_exact(&mut [0]).expect("an answer");
    begun.elapsed()
}

/// Answers a first byte `e`, and swallows everything else.
fn host() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 18];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if read == 1 && buffer[0] == b'e' {
                        let _ = stream.write_all(b"e");
                    }
                }
            });
        }
    });
    address
}

/// Accepts, connects, copies with the same buffers as the daemon, and does nothing else.
async fn relay(to: SocketAddr) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut host = tokio::net::TcpStream::connect(to).await.expect("the host");
                let _ = (client.set_nodelay(true), host.set_nodelay(true));
                let _ = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut host, 1 << 18, 1 << 18).await;
            });
        }
    });
    address
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
