//! SOCKS5, as far as it is of use: the command CONNECT without authentication.
//!
//! Guarantees: the destination is a host that all programs read alike; everything else of the protocol, and SOCKS4, is
//! refused with the code that says so. A client is told that it is connected only when it is, or when the daemon reads its
//! requests itself.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use palyra_types::host::HostName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    authority::{not_a_host, parse_host},
    door::Via,
    ledger::Entry,
    lobby::Seat,
    opening::{Client, goodbye, reset},
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
    run::Run,
    tunnel::{Reached, Tunnel},
};

/// Serves one client, whose first byte was looked at and not taken.
pub(crate) async fn serve(run: Arc<Run>, mut stream: TcpStream, seat: Arc<Seat>) {
    let mut entry = Entry::new(&run.ledger, Via::Socks5);
    let asked = tokio::select! {
        asked = timeout(run.limits.handshake, ask(&mut stream)) => asked.unwrap_or_else(|_| Err(too_slow())),
        () = seat.pushed_out() => Err(too_slow()),
    };
    seat.rise();
    let (host, port) = match asked {
        Ok(target) => target,
        // The client knows that it went away.
        Err(Wrong::Left) => return,
        Err(Wrong::Refused { named, refusal, reply }) => {
            entry.named(&named, 0).refused(refusal);
            return finish(stream, &reply).await;
        }
    };
    let mut client = Client::new(stream, Vec::new());
    entry.meant(&host, port);
    let passed = tokio::select! {
        passed = async {
            run.count()?;
            run.pass(&mut entry, host, port).await
        } => passed,
        () = client.gone(run.limits.header_bytes) => return,
    };
    match passed {
        Ok((passage, upstream)) => {
            if client.stream.write_all(&reply(SUCCEEDED)).await.is_err() {
                return;
            }
            Tunnel { client, passage, entry }.carry(&run, &seat, Reached::Already(upstream)).await;
        }
        Err(stop) => {
            let code = code_of(stop.refusal().kind);
            entry.ends(stop.outcome());
            drop(entry);
            finish(client.stream, &reply(code)).await;
        }
    }
}

/// The conversation up to the destination.
async fn ask(stream: &mut TcpStream) -> Result<(HostName, u16), Wrong> {
    let version = stream.read_u8().await?;
    if version == 4 {
        let refusal = EgressRefusal::new(Kind::NotSupported, "SOCKS4 is not offered");
        return Err(Wrong::Refused { named: String::new(), refusal, reply: SOCKS4_REFUSED.to_vec() });
    }
    let methods = read_counted(stream).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        let refusal =
            EgressRefusal::new(Kind::NotSupported, "the client wants to authenticate, and nobody asks for that");
        return Err(Wrong::Refused { named: String::new(), refusal, reply: vec![5, NO_METHOD] });
    }
    stream.write_all(&[5, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, reserved, kind] = head;
    let host = read_host(stream, kind).await?;
    let port = stream.read_u16().await?;
    let named = || format!("{}:{port}", host.as_ref().map_or_else(Clone::clone, |host| host.as_str().to_owned()));
    let refused = |kind, detail: &str, code| {
        let refusal = EgressRefusal::new(kind, detail);
        Err(Wrong::Refused { named: named(), refusal, reply: reply(code).to_vec() })
    };
    if version != 5 || reserved != 0 {
        return refused(Kind::BadRequest, "the request is no SOCKS5", GENERAL_FAILURE);
    }
    match command {
        1 => {}
        2 => return refused(Kind::NotSupported, "the SOCKS5 command BIND is not offered", COMMAND_NOT_SUPPORTED),
        3 => {
            return refused(
                Kind::NotSupported,
                "the SOCKS5 command UDP ASSOCIATE is not offered",
                COMMAND_NOT_SUPPORTED,
            );
        }
        _ => return refused(Kind::NotSupported, "the SOCKS5 command is none", COMMAND_NOT_SUPPORTED),
    }
    if port == 0 {
        return refused(Kind::BadRequest, "0 is no port", GENERAL_FAILURE);
    }
    match &host {
        Ok(host) => Ok((host.clone(), port)),
        Err(text) => {
            Err(Wrong::Refused { named: named(), refusal: not_a_host(text), reply: reply(NOT_ALLOWED).to_vec() })
        }
    }
}

/// The destination, or what stands in its place.
async fn read_host(stream: &mut TcpStream, kind: u8) -> Result<Result<HostName, String>, Wrong> {
    let address = match kind {
        1 => {
            let mut octets = [0; 4];
            stream.read_exact(&mut octets).await?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        3 => {
            let bytes = read_counted(stream).await?;
            let host = std::str::from_utf8(&bytes).ok().and_then(parse_host);
            return Ok(host.ok_or_else(|| String::from_utf8_lossy(&bytes).into_owned()));
        }
        4 => {
            let mut octets = [0; 16];
            stream.read_exact(&mut octets).await?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => {
            let refusal = EgressRefusal::new(Kind::NotSupported, "the SOCKS5 address type is none");
            return Err(Wrong::Refused { named: String::new(), refusal, reply: reply(TYPE_NOT_SUPPORTED).to_vec() });
        }
    };
    Ok(Ok(HostName::from_address(address)))
}

async fn read_counted(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let count = stream.read_u8().await?;
    let mut bytes = vec![0; usize::from(count)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Sends the last words, if there are any, and closes.
async fn finish(stream: TcpStream, reply: &[u8]) {
    if reply.is_empty() {
        return reset(&stream);
    }
    goodbye(stream, reply).await;
}

/// What ends the conversation early.
enum Wrong {
    Left,
    Refused { named: String, refusal: EgressRefusal, reply: Vec<u8> },
}

impl From<io::Error> for Wrong {
    fn from(_: io::Error) -> Self {
        Self::Left
    }
}

fn too_slow() -> Wrong {
    let refusal = EgressRefusal::new(Kind::TooSlow, "the client did not say in time what it wants");
    Wrong::Refused { named: String::new(), refusal, reply: Vec::new() }
}

const fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Unresolvable => HOST_UNREACHABLE,
        Kind::Unreachable => CONNECTION_REFUSED,
        Kind::TooSlow => TIME_EXPIRED,
        Kind::TooManyConnections | Kind::TooManyLookups => GENERAL_FAILURE,
        _ => NOT_ALLOWED,
    }
}

/// A reply with no address in it: the socket's own is nobody's business inside.
const fn reply(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const SUCCEEDED: u8 = 0;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const CONNECTION_REFUSED: u8 = 5;
const TIME_EXPIRED: u8 = 6;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const TYPE_NOT_SUPPORTED: u8 = 8;
const SOCKS4_REFUSED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];
