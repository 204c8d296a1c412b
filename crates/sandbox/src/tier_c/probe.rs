//! Looks at an enclosure from inside before any call does: what holds here, layer by layer.
//!
//! Guarantees: a mandatory layer that does not hold means that there is no tier C. What is optional is named, held or not.

use std::{fmt, io::Read, os::unix::net::UnixStream, time::Duration};

use super::{enclosure::Enclosure, linux::LinuxBubblewrap};
use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    init::send,
    outcome::Layer,
    plan::Limits,
    protocol::{Order, REPORT_LENGTH, Report, probe},
    supervision,
};

/// What holds in enclosures of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// The layers that are there.
    pub layers: Vec<Layer>,
    /// What was tried from inside and refused, in words.
    pub refused: Vec<&'static str>,
    /// What is optional and not there, and why that matters.
    pub missing: Vec<Missing>,
}

/// An optional layer that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No cgroups: memory and processor time are bounded for each process only.
    Cgroups,
    /// Landlock does not keep signals and abstract sockets within the tree. Namespaces do.
    Scopes,
    /// Nobody hears of refused system calls.
    Notices,
    /// There are no namespaces of cgroups.
    CgroupNamespace,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroups => "cgroups: memory is limited for each process, not for the tree",
            Self::Scopes => "Landlock's scopes: the kernel is older than 6.12; namespaces hold signals and sockets",
            Self::Notices => "notices of refused system calls: why a call failed is not told",
            Self::CgroupNamespace => "a namespace of cgroups: programs see the name of the machine's cgroups",
        })
    }
}

impl Matrix {
    /// Looks at an enclosure from inside.
    pub(super) fn of(enclosure: Enclosure, backend: &LinuxBubblewrap) -> Result<Self, Error> {
        let limits = Limits::default();
        let order = Order {
            is_probe: true,
            wall_ms: 10_000,
            cpu_seconds: limits.cpu_seconds,
            address_space: limits.address_space,
            processes: limits.processes,
            file_size: limits.file_size,
            open_files: limits.open_files,
            ..Order::default()
        };
        let Enclosure { idle, cgroup, user, mut layers, .. } = enclosure;
        let unheard =
            |error: std::io::Error| Error::new(Kind::Unavailable, format!("the enclosure does not answer: {error}"));
        send(&idle.orders, &order, &[]).map_err(unheard)?;
        let (passed, held) = match read_report(&idle.orders).map_err(unheard)? {
            Some(Report::Probed { passed, held }) => (passed, held),
            other => return Err(Error { kind: Kind::Unavailable, ..supervision::refusal(other) }),
        };
        #[cfg(weak)]
        let passed = passed | crate::weak::excused();
        if let Some((_, what)) = CHECKS.iter().find(|(bit, _)| passed & bit == 0) {
            return Err(Error::new(
                Kind::Unavailable,
                format!("tried from inside an enclosure, this was not refused: {what}"),
            ));
        }
        layers.extend(Layer::from_bits(held.layers, held.landlock));
        layers.push(Layer::CallFilter { sha256: backend.default_filters().digest });
        #[cfg(weak)]
        layers.retain(crate::weak::holds);
        layers.extend(user.map(|_| Layer::OwnUser));
        layers.extend(cgroup.iter().flat_map(|cgroup| cgroup.controllers()).map(Layer::Cgroup));
        let refused = CHECKS.iter().map(|(_, what)| *what).collect();
        let missing = missing(&layers);
        Ok(Self { layers, refused, missing })
    }
}

fn missing(layers: &[Layer]) -> Vec<Missing> {
    let has = |wanted: fn(&Layer) -> bool| layers.iter().any(wanted);
    let optional = [
        (Missing::Cgroups, has(|layer| matches!(layer, Layer::Cgroup(_)))),
        (Missing::Scopes, has(|layer| matches!(layer, Layer::SocketScope))),
        (Missing::Notices, has(|layer| matches!(layer, Layer::Notices))),
        (Missing::CgroupNamespace, has(|layer| matches!(layer, Layer::Namespace(crate::outcome::Namespace::Cgroup)))),
    ];
    optional.into_iter().filter(|(_, there)| !there).map(|(missing, _)| missing).collect()
}

fn read_report(mut socket: &UnixStream) -> std::io::Result<Option<Report>> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut report = [0; REPORT_LENGTH];
    socket.read_exact(&mut report)?;
    Ok(Report::decode(&report))
}

const CHECKS: &[(u64, &str)] = &[
    (probe::NAMESPACES, "namespaces of its own"),
    (probe::TRACING, "tracing"),
    (probe::MOUNTING, "mounting"),
    (probe::KEYS, "key rings"),
    (probe::KERNEL_PROGRAMS, "programs for the kernel"),
    (probe::RINGS, "io_uring"),
    (probe::NEWER_FORK, "clone3"),
    (probe::UNIX_SOCKETS, "Unix sockets"),
    (probe::SET_USER, "files that run as their owner"),
    (probe::CORE_PATTERN, "what the kernel runs when a program crashes"),
    (probe::LANDLOCK, "a file that only Landlock protects"),
    (probe::NETWORK, "the network"),
    (probe::STATUS, "capabilities, gaining any, or running without a filter"),
    (probe::NOT_ROOT, "being root"),
];
