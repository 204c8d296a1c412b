//! Tier C: a program inside an enclosure, with namespaces, mounts and a network of its own.
//!
//! [`TierCBackend`] says what builds enclosures on which platform; [`TierC`] runs them on this one, where it can.
//!
//! ```text
//! daemon ─► launcher ── becomes ─► bubblewrap ─► init, the first process inside ── fork ──► program
//!           cgroups, user, mounts   namespaces     route, sockets → daemon             Landlock, no capabilities, seccomp, limits
//! ```
//!
//! Guarantees: every mandatory layer stands, or there is no tier C: [`TierC::new`] tries an enclosure from inside. Nothing is ever run in a
//! weaker tier instead.
//! Does not: decide what is reachable. The plan and whoever guards its network do.

mod backend;
pub mod bubblewrap;
pub mod cgroup;
pub mod enclosure;
mod etc;
pub mod filter;
pub mod linux;
mod macos;
mod outside;
pub mod probe;
pub mod profile;
pub mod stock;
mod windows;

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use palyra_types::path::AbsolutePath;

pub use self::{
    backend::{BackendPlan, Command, TierCBackend},
    etc::TRUSTED,
    linux::LinuxBubblewrap,
    macos::MacosSandboxExec,
    windows::{JobObject, WindowsJobObject},
};
use self::{
    cgroup::Controller,
    enclosure::Enclosure,
    linux::LinuxOptions,
    probe::Matrix,
    profile::{Identity, NetworkKind, Profile, TreeBounds},
    stock::{Place, Stock, WarmOptions},
};
use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    executable::Executable,
    image::Image,
    init::{Idle, send},
    outcome::Layer,
    plan::{EnclosurePlan, Limits, ProcessPlan, UnixSockets},
    private::{PrivateFile, Sealed},
    protocol::Order,
    runner::Launched,
    running::off_the_runtime,
    stamp::status_of,
    supervision::Enclosed,
};

/// The executor's name in attestations of enclosures by bubblewrap.
pub const LINUX_BUBBLEWRAP: &str = "sandbox_tier_c_linux_bubblewrap";

/// What is configured about tier C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierCOptions {
    /// About this machine.
    pub linux: LinuxOptions,
    /// About enclosures that wait.
    pub warm: WarmOptions,
}

/// Enclosures, and those that wait.
#[derive(Debug)]
pub struct TierC {
    backend: LinuxBubblewrap,
    image: Arc<Image>,
    stock: Stock,
    matrix: Matrix,
}

impl TierC {
    /// Looks at what this machine has, and tries it.
    ///
    /// # Errors
    /// When a mandatory layer is missing.
    pub fn new(options: &TierCOptions, image: Arc<Image>) -> Result<Self, Error> {
        let backend = LinuxBubblewrap::new(&options.linux)?;
        let (profile, workspace) = trial(&options.linux.directory)?;
        let enclosure = Enclosure::start(&backend, &profile, workspace.as_fd(), &image, &[]);
        let matrix = Matrix::of(enclosure.map_err(|error| Error { kind: Kind::Unavailable, ..error })?, &backend)?;
        Ok(Self { backend, image, stock: Stock::new(options.warm), matrix })
    }

    /// What holds in enclosures of this machine.
    #[must_use]
    pub const fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// What builds the enclosures.
    #[must_use]
    pub const fn backend(&self) -> &LinuxBubblewrap {
        &self.backend
    }

    /// Ends the enclosures that wait: what they were made for may not hold any more.
    pub fn clear(&self) {
        self.stock.clear();
    }

    /// How many enclosures wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.stock.count()
    }

    /// Whether an enclosure holds what a plan needs.
    pub(crate) fn check(
        &self,
        plan: &ProcessPlan,
        enclosure: &EnclosurePlan,
        executable: &Executable,
    ) -> Result<(), Error> {
        if let Some(own) = self.backend.own_directories().find(|own| is_at_or_above(&plan.workspace, own)) {
            let what = format!("an enclosure has its own {own}, so this cannot be a workspace of tier c:");
            return Err(Error::about(Kind::OutsideWorkspace, &what, plan.workspace.as_str()));
        }
        let holds = |path: &AbsolutePath| {
            self.backend.holds(path)
                || path.is_within(&plan.workspace)
                || enclosure.read_only.iter().any(|directory| path.is_within(directory))
        };
        let files = std::iter::once(executable.program()).chain(executable.interpreters());
        match files.map(|file| file.real_path()).find(|path| !holds(path)) {
            None => Ok(()),
            Some(missing) => {
                Err(Error::about(Kind::OutsideEnclosure, "it lies outside of what tier c mounts:", missing.as_str()))
            }
        }
    }

    /// The paths that a plan gives to its program and that its enclosure does not hold.
    pub(crate) fn outside(&self, plan: &ProcessPlan, enclosure: &EnclosurePlan) -> Vec<String> {
        outside::outside(plan, enclosure, self.backend.system())
    }

    /// An enclosure with this order: one that waits, or else a new one.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        place: &Arc<Place>,
        order: &Order,
        fds: &[BorrowedFd<'_>],
        files: &Arc<[PrivateFile]>,
    ) -> Result<Launched, Error> {
        // One with secrets in it is made for one call, and none waits.
        while files.is_empty()
            && let Some(enclosure) = self.stock.take(place)
        {
            if let Ok(launched) = self.order(enclosure, place, order, fds) {
                return Ok(launched);
            }
        }
        let (tier_c, of, with) = (Arc::clone(self), Arc::clone(place), Arc::clone(files));
        let started = tokio::spawn(off_the_runtime(move || tier_c.start(&of, &with))).await;
        let enclosure = match started {
            Ok(Some(started)) => started?,
            _ => return Err(Error::new(Kind::SpawnFailed, "no thread could be had for starting an enclosure")),
        };
        self.order(enclosure, place, order, fds)
    }

    fn order(
        &self,
        enclosure: Enclosure,
        place: &Place,
        order: &Order,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Launched, Error> {
        let failed = |error: std::io::Error| Error::new(Kind::SpawnFailed, error.to_string());
        let Enclosure { idle: Idle { init, control, orders }, sockets, cgroup, user, mut layers, authority } =
            enclosure;
        if let Some(user) = user {
            // So that what is written to can be opened by its path, too: `/dev/stdout`.
            let (uid, gid) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(user));
            for end in fds {
                let _ = rustix::fs::fchown(end, Some(uid), Some(gid));
            }
            layers.push(Layer::OwnUser);
        }
        layers.push(Layer::CallFilter { sha256: self.backend.filters(&place.profile).digest });
        #[cfg(weak)]
        layers.retain(crate::weak::holds);
        layers.extend(cgroup.iter().flat_map(|cgroup| cgroup.controllers()).map(Layer::Cgroup));
        let orders = tokio::net::UnixStream::from_std(orders).map_err(failed)?;
        // A cgroup that counts processes comes first, since it tells when one could not be started.
        let is_counted = cgroup.as_ref().is_some_and(|cgroup| cgroup.controllers().contains(&Controller::Processes));
        let spare = if is_counted { SPARE_PROCESSES } else { 0 };
        let order = Sealed(Order { processes: order.processes.saturating_add(spare), ..order.clone() });
        let unsent = send(orders.as_fd(), &order, fds).map_err(failed)?;
        let enclosed = Some(Enclosed { layers, cgroup });
        Ok(Launched { init, control, orders, unsent, enclosed, sockets, authority })
    }

    /// Starts an enclosure for a place. Takes some milliseconds.
    fn start(&self, place: &Place, files: &[PrivateFile]) -> Result<Enclosure, Error> {
        Enclosure::start(&self.backend, &place.profile, place.workspace.as_fd(), &self.image, files)
    }

    /// Sees to it that enough wait for a place. Failing is no harm: the next call tries again.
    pub(crate) fn refill(self: &Arc<Self>, place: &Arc<Place>) {
        while !place.profile.has_secret_files && self.stock.reserve(place) {
            let started = self.start(place, &[]).ok();
            let failed = started.is_none();
            self.stock.bring(place, started);
            if failed {
                break;
            }
        }
        let tier_c = Arc::downgrade(self);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while let Some(next) = tier_c.upgrade().and_then(|tier_c| tier_c.stock.end_idle()) {
                    tokio::time::sleep(next.max(Duration::from_millis(100))).await;
                }
            });
        }
    }
}

/// By how much a limit lies above what a cgroup bounds anyway.
const SPARE_PROCESSES: u64 = 16;

fn is_at_or_above(workspace: &AbsolutePath, own: &str) -> bool {
    AbsolutePath::parse(own).is_ok_and(|own| own.is_within(workspace))
}

/// A profile for an enclosure in which nothing is to run, with a workspace in which there is nothing.
fn trial(directory: &Path) -> Result<(Profile, OwnedFd), Error> {
    let refused = |error: std::io::Error| Error::new(Kind::Unavailable, format!("nothing can be tried out: {error}"));
    let place = directory.join("empty");
    std::fs::create_dir_all(&place).map_err(refused)?;
    let workspace = OwnedFd::from(std::fs::File::open(&place).map_err(refused)?);
    let status = status_of(&workspace).map_err(|errno| refused(errno.into()))?;
    let path = place.to_str().and_then(|path| AbsolutePath::parse(path).ok());
    let limits = Limits::default();
    let profile = Profile {
        principal: String::new(),
        workspace: path.ok_or_else(|| refused(std::io::ErrorKind::InvalidFilename.into()))?,
        identity: Identity::of(&status),
        read_only: Vec::new(),
        hidden: Vec::new(),
        temporary_bytes: 1 << 20,
        unix_sockets: UnixSockets::Refuse,
        network: NetworkKind::own(BTreeSet::from([80, 443])),
        bounds: TreeBounds {
            memory: limits.memory,
            processes: limits.processes,
            processor_percent: limits.processor_percent,
        },
        intercepts: false,
        has_secret_files: false,
    };
    Ok((profile, workspace))
}
