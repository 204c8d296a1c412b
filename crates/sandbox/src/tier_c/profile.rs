//! What an enclosure is made of, before it is known what runs in it.
//!
//! Guarantees: equal profiles make equal enclosures, so one that waits may serve whichever call has an equal one; whose call it is belongs to
//! it. Does not: name a program, its arguments or its variables.

use std::collections::BTreeSet;

use palyra_types::{path::AbsolutePath, sandbox::EgressEnforcementMode};

use super::{bubblewrap::SystemTree, enclosure::MOST_FDS, linux::PROXY_PORT};
use crate::{
    plan::{Containment, Limits, ProcessPlan, UnixSockets},
    protocol::Stamp,
};

/// What an enclosure is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Profile {
    /// Whose calls may use it.
    pub principal: String,
    /// The root of the workspace, which is at the same path inside.
    pub workspace: AbsolutePath,
    /// Which directory that is.
    pub identity: Identity,
    /// Directories that can be read and executed, besides the system's own.
    pub read_only: Vec<AbsolutePath>,
    /// Directories hidden in all of these.
    pub hidden: Vec<AbsolutePath>,
    /// How many bytes temporary files may take.
    pub temporary_bytes: u64,
    /// Whether programs may use Unix sockets.
    pub unix_sockets: UnixSockets,
    /// The network.
    pub network: NetworkKind,
    /// What the tree as a whole may use.
    pub bounds: TreeBounds,
    /// Whether programs trust an authority that is the enclosure's own.
    pub intercepts: bool,
    /// Whether it is made for one call that has secrets in files.
    pub has_secret_files: bool,
}

/// Which directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The number within it.
    pub inode: u64,
    /// Who owns it: user and group.
    pub owner: [u32; 2],
}

impl Identity {
    /// Of what the kernel says about a directory.
    #[must_use]
    pub fn of(status: &rustix::fs::Statx) -> Self {
        let Stamp { device, inode, .. } = Stamp::from(status);
        Self { device, inode, owner: [status.stx_uid, status.stx_gid] }
    }
}

/// The network of an enclosure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NetworkKind {
    /// The machine's own.
    Machine,
    /// One of its own, in which every name is answered at these ports.
    Own(BTreeSet<u16>),
}

impl NetworkKind {
    /// One of its own, in which every name is answered at these ports.
    ///
    /// Not at the proxy's, where nothing else can be, nor at more than a message has room for. Whoever looks for a host at those finds it by the proxy.
    pub(super) fn own(mut ports: BTreeSet<u16>) -> Self {
        ports.remove(&PROXY_PORT);
        let ports = ports.into_iter().take(MOST_PORTS).collect();
        #[cfg(weak)]
        if crate::weak::is_off(crate::blueprint::weakness::NETWORK) {
            return Self::Machine;
        }
        Self::Own(ports)
    }
}

/// What a tree may use together, where there are cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeBounds {
    /// Bytes of memory.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Hundredths of a processor; zero for no bound.
    pub processor_percent: u64,
}

impl Profile {
    /// The profile of a plan, for a principal and the workspace as it is. Nothing for a plan without an enclosure.
    #[must_use]
    pub fn of(plan: &ProcessPlan, principal: &str, identity: Identity) -> Option<Self> {
        let Containment::Enclosure(enclosure) = &plan.containment else { return None };
        let Limits { memory, processes, processor_percent, .. } = plan.limits;
        Some(Self {
            principal: principal.to_owned(),
            workspace: plan.workspace.clone(),
            identity,
            read_only: enclosure.read_only.clone(),
            hidden: plan.hidden.clone(),
            #[cfg(not(weak))]
            temporary_bytes: enclosure.temporary_bytes,
            #[cfg(weak)]
            temporary_bytes: enclosure.temporary_bytes.max(crate::weak::more_room()),
            unix_sockets: enclosure.unix_sockets,
            network: match plan.egress.mode {
                EgressEnforcementMode::Strict => NetworkKind::own(enclosure.ports.clone()),
                EgressEnforcementMode::None | EgressEnforcementMode::Preflight => NetworkKind::Machine,
            },
            bounds: TreeBounds { memory, processes, processor_percent },
            intercepts: enclosure.intercepts,
            has_secret_files: false,
        })
    }

    /// The directories that are mounted to be read: those that are not there anyway.
    ///
    /// SECURITY: none inside the workspace. Its mount point would be a path that programs of an earlier call may have chosen.
    pub fn mounted_read_only<'a>(&'a self, system: &'a SystemTree) -> impl Iterator<Item = &'a AbsolutePath> {
        self.read_only.iter().filter(|path| !system.holds(path) && !path.is_within(&self.workspace))
    }
}

/// As many sockets as go along with the report that an enclosure stands, without those for names and for the proxy.
const MOST_PORTS: usize = MOST_FDS - 2;

/// A profile for tests.
#[cfg(test)]
pub fn example(workspace: &str) -> Profile {
    use crate::tier_c::profile::NetworkKind::Own;
    let path = |text: &str| AbsolutePath::parse(text).unwrap();
    Profile {
        principal: "agent:builder".to_owned(),
        workspace: path(workspace),
        identity: Identity { device: 1, inode: 2, owner: [1000, 1000] },
        read_only: vec![path("/opt/tools")],
        hidden: vec![path("/srv/state")],
        temporary_bytes: 64 << 20,
        unix_sockets: UnixSockets::Refuse,
        network: Own(BTreeSet::from([80, 443])),
        bounds: TreeBounds { memory: 8 << 30, processes: 512, processor_percent: 150 },
        intercepts: false,
        has_secret_files: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule for this port left no enclosure standing.
    #[test]
    fn no_host_is_looked_for_at_the_port_of_the_proxy() {
        assert_eq!(NetworkKind::own(BTreeSet::from([443, PROXY_PORT])), NetworkKind::Own(BTreeSet::from([443])));
    }
}
