//! What the daemon says to have an enclosure built: the namespaces, mounts, sockets and filters in which one tool will run. Both sides
//! compile this file.
//!
//! It goes over the socket of the orders, before any order: a [`Launch`] to the launcher, which becomes bubblewrap, then a [`Blueprint`] to
//! the init that bubblewrap starts inside. Each is preceded by its length.
//! Guarantees: reading never panics and never allocates more than the bytes that arrived.
//! Does not: say what runs. The order does, later.

use alloc::{vec, vec::Vec};

use crate::protocol::{Named, count, length, list, number, put, put_list, some, take};

/// The longest of these messages.
pub const LONGEST: usize = 8 << 20;

/// Where an enclosure has the secrets that are files.
pub const SECRETS: &str = "/run/secrets";

/// Where the init finds, as the first program of an enclosure, its control socket and the socket of the orders.
pub const SOCKETS: [i32; 2] = [3, 4];

/// Where it finds itself, as a file.
pub const IMAGE: i32 = 5;

/// Where it finds the mounts that the launcher made, one after the other.
pub const MOUNTS: i32 = 16;

/// What the launcher does before it becomes bubblewrap. Beside it travel: for each cgroup its list of processes, and for each mount its
/// directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// Bubblewrap's file.
    pub program: Vec<u8>,
    /// Its arguments, its own name first.
    pub args: Vec<Vec<u8>>,
    /// How many cgroups there are to join.
    pub cgroups: u64,
    /// The user and the group to become, for a launcher of root.
    pub user: Option<[u64; 2]>,
    /// The mounts to make: whose they are on the disk, and whether they can be written to.
    pub mounts: Vec<Mount>,
    /// What is switched off for a test.
    #[cfg(weak)]
    pub weaknesses: u64,
}

/// A mount that is made where root is still root. Files of its owner belong to the user of the enclosure, seen from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount {
    /// User and group on the disk.
    pub owner: [u64; 2],
    /// Whether it can only be read.
    pub read_only: bool,
}

impl Launch {
    /// As bytes, their number first.
    pub fn encode(&self) -> Vec<u8> {
        framed(|out| {
            put(out, &self.program);
            put_list(out, &self.args);
            let [user, group] = self.user.unwrap_or_default();
            for number in [self.cgroups, u64::from(self.user.is_some()), user, group] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&length(self.mounts.len()));
            for Mount { owner: [user, group], read_only } in &self.mounts {
                for number in [*user, *group, u64::from(*read_only)] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            #[cfg(weak)]
            out.extend_from_slice(&self.weaknesses.to_le_bytes());
        })
    }

    /// Reads what [`Launch::encode`] wrote, without the leading length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let (program, args) = (take(&mut rest)?, list(&mut rest)?);
        let [cgroups, has_user, user, group] = some(&mut rest)?;
        let user = (has_user == 1).then_some([user, group]);
        let mut launch = Self { program, args, cgroups, user, ..Self::default() };
        for _ in 0..count(&mut rest)? {
            let [user, group, read_only] = some(&mut rest)?;
            launch.mounts.push(Mount { owner: [user, group], read_only: read_only == 1 });
        }
        #[cfg(weak)]
        {
            launch.weaknesses = number(&mut rest)?;
        }
        rest.is_empty().then_some(launch)
    }
}

/// What the init builds inside, before there is an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blueprint {
    /// Where the mounts of the launcher go, in their order.
    pub mounts: Vec<Vec<u8>>,
    /// Directories of the machine, and which ones they have to be, whatever their paths led to when they were mounted.
    pub roots: Vec<Named>,
    /// What can be read and executed.
    pub programs: Vec<Vec<u8>>,
    /// What can be read.
    pub readable: Vec<Vec<u8>>,
    /// What can be read and written, but neither executed nor added to: devices.
    pub devices: Vec<Vec<u8>>,
    /// What can be used freely.
    pub writable: Vec<Vec<u8>>,
    /// What within those can be used in no way.
    pub hidden: Vec<Vec<u8>>,
    /// The filters of system calls, as the kernel takes them.
    pub filters: Vec<Vec<u8>>,
    /// One more, whose refusals are heard of, and what takes its place where the kernel does not tell of refusals.
    pub noticed: [Vec<u8>; 2],
    /// What the calls of that one fail with.
    pub noticed_error: u64,
    /// The network, unless it is the machine's.
    pub network: Option<Network>,
    /// Files of the enclosure that hold one more text here than they do elsewhere.
    pub added_to: Vec<Vec<u8>>,
    /// That text.
    pub added: Vec<u8>,
    /// Files that are put into [`SECRETS`]: their names, and what they hold.
    pub secrets: Vec<(Vec<u8>, Vec<u8>)>,
    /// What is switched off for a test.
    #[cfg(weak)]
    pub weaknesses: u64,
}

/// What can be switched off for a test, in debug builds.
#[cfg(weak)]
pub mod weakness {
    /// The filters of system calls.
    pub const SECCOMP: u64 = 1;
    /// Landlock.
    pub const LANDLOCK: u64 = 1 << 1;
    /// The users that enclosures of a root daemon have for themselves.
    pub const USER: u64 = 1 << 2;
    /// The closing of descriptors.
    pub const CLOSE_RANGE: u64 = 1 << 3;
    /// The network of one's own.
    pub const NETWORK: u64 = 1 << 4;
    /// The tree of mounts that starts from nothing: all of the machine is there instead.
    pub const MOUNTS: u64 = 1 << 5;
    /// The giving up of capabilities.
    pub const CAPABILITIES: u64 = 1 << 6;
    /// Limits, cgroups, and what temporary files may take.
    pub const LIMITS: u64 = 1 << 7;
    /// What keeps others from looking into the init.
    pub const INIT: u64 = 1 << 8;
}

/// A network of which nothing leads anywhere but to the sockets that are handed out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// The beginning of the addresses that stand for hosts, and how many bits of them are fixed.
    pub addresses: ([u8; 4], u8),
    /// The port of the proxy at 127.0.0.1.
    pub proxy: u16,
    /// The ports at which every address is answered.
    pub ports: Vec<u16>,
}

impl Blueprint {
    /// As bytes, their number first.
    pub fn encode(&self) -> Vec<u8> {
        framed(|out| {
            for items in self.lists() {
                put_list(out, items);
            }
            put(out, &self.added);
            out.extend_from_slice(&length(self.secrets.len()));
            for (name, content) in &self.secrets {
                put(out, name);
                put(out, content);
            }
            out.extend_from_slice(&length(self.roots.len()));
            for Named { path, device, inode } in &self.roots {
                put(out, path);
                out.extend_from_slice(&device.to_le_bytes());
                out.extend_from_slice(&inode.to_le_bytes());
            }
            put_list(out, &self.noticed);
            out.extend_from_slice(&self.noticed_error.to_le_bytes());
            out.extend_from_slice(&length(usize::from(self.network.is_some())));
            if let Some(Network { addresses: (address, fixed), proxy, ports }) = &self.network {
                put(out, address);
                out.extend_from_slice(&u64::from(*fixed).to_le_bytes());
                out.extend_from_slice(&u64::from(*proxy).to_le_bytes());
                out.extend_from_slice(&length(ports.len()));
                ports.iter().for_each(|port| out.extend_from_slice(&u64::from(*port).to_le_bytes()));
            }
            #[cfg(weak)]
            out.extend_from_slice(&self.weaknesses.to_le_bytes());
        })
    }

    /// Reads what [`Blueprint::encode`] wrote, without the leading length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut blueprint = Self {
            mounts: list(&mut rest)?,
            programs: list(&mut rest)?,
            readable: list(&mut rest)?,
            devices: list(&mut rest)?,
            writable: list(&mut rest)?,
            hidden: list(&mut rest)?,
            filters: list(&mut rest)?,
            added_to: list(&mut rest)?,
            added: take(&mut rest)?,
            secrets: secrets(&mut rest)?,
            roots: roots(&mut rest)?,
            noticed: list(&mut rest)?.try_into().ok()?,
            noticed_error: number(&mut rest)?,
            network: None,
            #[cfg(weak)]
            weaknesses: 0,
        };
        if count(&mut rest)? > 0 {
            let address = take(&mut rest)?.try_into().ok()?;
            let fixed = u8::try_from(number(&mut rest)?).ok()?;
            let proxy = u16::try_from(number(&mut rest)?).ok()?;
            let mut ports = Vec::new();
            for _ in 0..count(&mut rest)? {
                ports.push(u16::try_from(number(&mut rest)?).ok()?);
            }
            blueprint.network = Some(Network { addresses: (address, fixed), proxy, ports });
        }
        #[cfg(weak)]
        {
            blueprint.weaknesses = number(&mut rest)?;
        }
        rest.is_empty().then_some(blueprint)
    }

    /// Whether any of these is switched off for a test.
    #[cfg(weak)]
    pub const fn is_without(&self, defences: u64) -> bool {
        self.weaknesses & defences != 0
    }

    const fn lists(&self) -> [&Vec<Vec<u8>>; 8] {
        let Self { mounts, programs, readable, devices, writable, hidden, filters, added_to, .. } = self;
        [mounts, programs, readable, devices, writable, hidden, filters, added_to]
    }
}

fn secrets(rest: &mut &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut secrets = Vec::new();
    for _ in 0..count(rest)? {
        secrets.push((take(rest)?, take(rest)?));
    }
    Some(secrets)
}

fn roots(rest: &mut &[u8]) -> Option<Vec<Named>> {
    let mut roots = Vec::new();
    for _ in 0..count(rest)? {
        let path = take(rest)?;
        let [device, inode] = some(rest)?;
        roots.push(Named { path, device, inode });
    }
    Some(roots)
}

fn framed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; 4];
    write(&mut out);
    let body = length(out.len().saturating_sub(4));
    out.iter_mut().zip(body).for_each(|(place, byte)| *place = byte);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_the_launcher_arrives_as_it_was_sent() {
        let launch = Launch {
            program: b"/usr/bin/bwrap".to_vec(),
            args: vec![b"bwrap".to_vec(), Vec::new()],
            cgroups: 2,
            user: Some([7, 8]),
            mounts: vec![Mount { owner: [0, 1], read_only: true }, Mount { owner: [1000, 1000], read_only: false }],
            ..Launch::default()
        };
        let sent = launch.encode();
        let (length, body) = sent.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*length) as usize, body.len());
        assert_eq!(Launch::decode(body), Some(launch));
        for cut in 0..body.len() {
            assert_eq!(Launch::decode(&body[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_blueprint_arrives_as_it_was_sent() {
        let blueprint = Blueprint {
            mounts: vec![b"/w".to_vec()],
            programs: vec![b"/usr".to_vec()],
            roots: vec![Named { path: b"/w".to_vec(), device: 7, inode: 8 }],
            filters: vec![vec![0; 16]],
            noticed: [vec![1; 8], Vec::new()],
            noticed_error: 1,
            added_to: vec![b"/etc/bundle".to_vec()],
            added: b"certificate".to_vec(),
            secrets: vec![(b"token".to_vec(), vec![0, 255]), (b"empty".to_vec(), Vec::new())],
            network: Some(Network { addresses: ([198, 18, 0, 0], 15), proxy: 3128, ports: vec![80, 443] }),
            ..Blueprint::default()
        };
        let sent = blueprint.encode();
        let (_, body) = sent.split_first_chunk::<4>().unwrap();
        assert_eq!(Blueprint::decode(body), Some(blueprint));
        for cut in 0..body.len() {
            assert_eq!(Blueprint::decode(&body[..cut]), None, "{cut}");
        }
    }
}
