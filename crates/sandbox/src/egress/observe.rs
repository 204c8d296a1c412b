//! Looks every now and then where a tree is connected to, where nothing holds its network.
//!
//! Guarantees: what is told was seen. Does not: enforce anything, or see everything: a connection that comes and goes between two looks is missed,
//! and so is whatever is sent without one.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};

use super::{connect::Connector, resolve::Share};
use crate::plan::EgressHost;

/// Looks at the connections of one tree until it is asked what it saw.
#[must_use]
pub struct Observer {
    looking: JoinHandle<BTreeSet<SocketAddr>>,
    over: watch::Sender<bool>,
}

impl Observer {
    /// Looks at the tree below a process, which declared these hosts.
    pub fn start(process: u32, hosts: Vec<EgressHost>, net: Arc<Connector>) -> Self {
        let (over, mut is_over) = watch::channel(false);
        let looking = tokio::spawn(async move {
            let (mut seen, mut declared) = (BTreeSet::new(), None);
            loop {
                tokio::select! {
                    _ = is_over.wait_for(|&over| over) => break,
                    () = tokio::time::sleep(EVERY) => {}
                }
                let found = tokio::task::spawn_blocking(move || connections(process)).await.unwrap_or_default();
                let new: Vec<SocketAddr> = found.difference(&seen).copied().take(MOST - seen.len().min(MOST)).collect();
                if new.is_empty() {
                    continue;
                }
                // Names are resolved only if there is something to compare them with.
                if declared.is_none() {
                    declared = Some(addresses(&hosts, &net).await);
                }
                let is_declared = |at: &SocketAddr| declared.as_ref().is_some_and(|declared| declared.contains(at));
                seen.extend(new.into_iter().filter(|at| !is_declared(at)));
            }
            seen
        });
        Self { looking, over }
    }

    /// Where it was connected to that no declared host has.
    pub async fn finish(self) -> BTreeSet<SocketAddr> {
        let _ = self.over.send(true);
        self.looking.await.unwrap_or_default()
    }
}

/// Where the declared hosts are.
async fn addresses(hosts: &[EgressHost], net: &Connector) -> BTreeSet<SocketAddr> {
    let (mut addresses, share) = (BTreeSet::new(), Share::new(1));
    for EgressHost { host, port } in hosts {
        let found = net.look_up(host, &share).await.unwrap_or_default();
        addresses.extend(found.into_iter().map(|address| SocketAddr::new(address.to_canonical(), *port)));
    }
    addresses
}

/// Where a tree is connected to now.
fn connections(process: u32) -> BTreeSet<SocketAddr> {
    let mut sockets = BTreeSet::new();
    let mut members = vec![process];
    while let Some(member) = members.pop() {
        let tasks = fs::read_dir(format!("/proc/{member}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            members.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        for descriptor in fs::read_dir(format!("/proc/{member}/fd")).into_iter().flatten().flatten() {
            let link = fs::read_link(descriptor.path()).ok();
            let inode =
                link.as_ref().and_then(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            sockets.extend::<Option<u64>>(inode);
        }
    }
    if sockets.is_empty() {
        return BTreeSet::new();
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"];
    let rows = tables.into_iter().filter_map(|table| fs::read_to_string(table).ok());
    rows.flat_map(|text| text.lines().skip(1).filter_map(row).collect::<Vec<_>>())
        .filter(|(inode, peer)| sockets.contains(inode) && !peer.ip().is_unspecified())
        .map(|(_, peer)| peer)
        .collect()
}

/// The inode and the other end of a socket, from a row of the kernel's tables.
fn row(line: &str) -> Option<(u64, SocketAddr)> {
    let mut fields = line.split_ascii_whitespace();
    let peer = address(fields.nth(2)?)?;
    let inode = fields.nth(6)?.parse().ok()?;
    Some((inode, peer))
}

/// An address as the kernel's tables spell it: words of the machine's own byte order, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(host.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match host.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (place, word) in bytes.chunks_exact_mut(4).zip((0..4).map(word)) {
                place.copy_from_slice(&word?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// How often it looks.
const EVERY: Duration = Duration::from_millis(100);

/// How many addresses it remembers.
const MOST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_kernels_tables_are_read() {
        let line =
            "   0: 0100007F:9C40 0700000A:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
        assert_eq!(row(line), Some((4242, "10.0.0.7:443".parse().unwrap())));
        let line =
            " 1: 00000000000000000000000001000000:1F90 0000000000000000FFFF00000700000A:0050 01 0:0 0:0 0 0 0 7 1";
        assert_eq!(row(line), Some((7, "10.0.0.7:80".parse().unwrap())));
        assert_eq!(row("sl local_address rem_address"), None);
    }

    #[test]
    fn a_connection_of_this_process_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = std::net::TcpStream::connect(at).unwrap();
        assert!(connections(std::process::id()).contains(&at));
        drop(stream);
    }
}
