//! Tier C on Linux: what this machine has for enclosures, and how one is put together for a profile.
//!
//! Guarantees: an enclosure never runs as root; where the daemon is root, each has a user of its own that nobody else has, and files that it
//! makes in the workspace belong to the workspace's owner.
//! Refuses: a workspace that cannot be mounted so, with what to do about it. Does not: start anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use palyra_types::path::AbsolutePath;
use rustix::fs::{Mode, OFlags};

use super::{
    bubblewrap::{self, Binding, SystemTree},
    cgroup::{Cgroup, Cgroups},
    enclosure::own_namespaces,
    etc::Etc,
    filter::{Filters, NOTICED_ERROR},
    outside,
    profile::{Identity, NetworkKind, Profile},
};
use crate::{
    blueprint::{Blueprint, IMAGE, Launch, Mount, Network, SECRETS},
    egress::RunAuthority,
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    outcome::{Layer, Namespace},
    plan::UnixSockets,
    private::PrivateFile,
    protocol::{Named, Stamp},
    runner::hidden_as_bytes,
    stamp::status_of,
};

/// What is configured about enclosures on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxOptions {
    /// Bubblewrap's file. Without one it is looked for.
    pub bubblewrap: Option<PathBuf>,
    /// A directory for what enclosures are given to read. The daemon's own.
    pub directory: PathBuf,
    /// The first of the users that enclosures of a root daemon run as. Nobody else may have these.
    pub first_user: u32,
    /// Whether an enclosure without a cgroup is none.
    pub require_cgroup: bool,
    /// Certificates of authorities that programs trust, besides those that the machine trusts.
    pub trust: Vec<PathBuf>,
    /// Directories that enclosures may be given to read. Each has to stay the one that it is now.
    pub read_only: Vec<PathBuf>,
}

/// Enclosures by bubblewrap.
#[derive(Debug)]
pub struct LinuxBubblewrap {
    program: PathBuf,
    version: String,
    system: SystemTree,
    etc: Arc<Etc>,
    cgroups: Arc<Cgroups>,
    users: Option<Users>,
    filters: [(UnixSockets, Filters); 2],
    own: [u64; 7],
    /// Which directories those are that can be given to read, by device and number.
    read_only: BTreeMap<PathBuf, (u64, u64)>,
}

/// Everything that is needed to start one enclosure.
pub struct Construction {
    /// For the launcher.
    pub launch: Launch,
    /// For the init inside.
    pub blueprint: Blueprint,
    /// What bounds the tree.
    pub cgroup: Option<Cgroup>,
    /// The user outside, if it is not the daemon's own.
    pub user: Option<User>,
    /// The directories that the launcher mounts, without the workspace, which comes last.
    pub directories: Vec<OwnedFd>,
    /// What has to stay as long as the enclosure does.
    pub etc: Arc<Etc>,
}

/// What one enclosure has that no other has.
#[derive(Clone, Copy)]
pub struct Own<'a> {
    /// Whom its programs trust, besides those that all trust.
    pub authority: Option<&'a RunAuthority>,
    /// Its secrets that are files.
    pub files: &'a [PrivateFile],
}

impl LinuxBubblewrap {
    /// Looks at what this machine has.
    ///
    /// # Errors
    /// When something is missing that every enclosure needs.
    pub fn new(options: &LinuxOptions) -> Result<Self, Error> {
        let unavailable =
            |what: &str, error: &dyn std::fmt::Display| Error::new(Kind::Unavailable, format!("{what}: {error}"));
        let program = find_bubblewrap(options.bubblewrap.as_deref())?;
        let version = version_of(&program).map_err(|error| unavailable("bubblewrap does not run", &error))?;
        let system =
            SystemTree::of_this_machine().map_err(|error| unavailable("the system's programs are missing", &error))?;
        let etc = Etc::generate(&options.directory, &options.trust);
        let etc = Arc::new(etc.map_err(|error| unavailable("no /etc can be made for enclosures", &error))?);
        let cgroups = Arc::new(Cgroups::of_this_machine());
        #[cfg(weak)]
        let cgroups = if crate::weak::is_off(crate::blueprint::weakness::LIMITS) { Arc::default() } else { cgroups };
        if options.require_cgroup && cgroups.controllers().is_empty() {
            return Err(Error::new(
                Kind::Unavailable,
                "there are no cgroups to be had, and `require_cgroup` demands them",
            ));
        }
        let broken = |error: seccompiler::BackendError| unavailable("the filter of system calls is broken", &error);
        let filters =
            [UnixSockets::Refuse, UnixSockets::Allow].map(|allowed| Filters::new(allowed).map(|made| (allowed, made)));
        let [refuse, allow] = filters;
        let is_root = rustix::process::geteuid().is_root();
        #[cfg(weak)]
        let is_root = is_root && !crate::weak::is_off(crate::blueprint::weakness::USER);
        let users = is_root.then(|| Users::from(options.first_user));
        let own = own_namespaces().map_err(|error| unavailable("the kernel does not tell namespaces apart", &error))?;
        let filters = [refuse.map_err(broken)?, allow.map_err(broken)?];
        let known = |path: &PathBuf| Some((path.clone(), which(&open_directory(path).ok()?).ok()?));
        let read_only = options.read_only.iter().filter_map(known).collect();
        Ok(Self { program, version, system, etc, cgroups, users, filters, own, read_only })
    }

    /// The version of bubblewrap.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What can be bounded for a tree as a whole.
    #[must_use]
    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// The directories that every enclosure has of its own, or of the system.
    pub(super) fn own_directories(&self) -> impl Iterator<Item = &str> {
        self.system.paths().chain(outside::OWN.iter().copied())
    }

    /// The system's own programs.
    pub(super) const fn system(&self) -> &SystemTree {
        &self.system
    }

    /// Whether a path is among the system's own programs, which every enclosure holds.
    #[must_use]
    pub fn holds(&self, path: &AbsolutePath) -> bool {
        self.system.holds(path)
    }

    /// The arguments that bubblewrap is started with.
    #[must_use]
    pub fn arguments(&self, profile: &Profile) -> Vec<String> {
        let binding = match &self.users {
            Some(_) => Binding::ByDescriptor,
            None => Binding::ByPath { etc: self.etc.path().to_owned() },
        };
        #[cfg(weak)]
        if crate::weak::is_off(crate::blueprint::weakness::MOUNTS) {
            return bubblewrap::arguments_with_the_machine(profile, &self.system, &binding, IMAGE);
        }
        bubblewrap::arguments(profile, &self.system, &binding, IMAGE)
    }

    /// Puts together what an enclosure is started with.
    ///
    /// # Errors
    /// When a directory of the profile cannot be used.
    pub fn construct(&self, profile: &Profile, own: &Own<'_>) -> Result<Construction, Error> {
        let refused =
            |error: io::Error| Error::new(Kind::SpawnFailed, format!("no enclosure can be put together: {error}"));
        let cgroup = self.cgroups.make(&profile.bounds).map_err(refused)?;
        let user = self.users.as_ref().map(Users::take).transpose()?;
        let (mut directories, mut mounts) = (Vec::new(), Vec::new());
        let mut blueprint = self.blueprint(profile);
        if let Some(authority) = own.authority {
            blueprint.added_to = self.etc.bundles().iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
            blueprint.added = authority.certificate_pem().as_bytes().to_vec();
        }
        let bytes = |file: &PrivateFile| (file.name.as_bytes().to_vec(), file.content.to_vec());
        blueprint.secrets = own.files.iter().map(bytes).collect();
        let read_only = self.read_only(profile)?;
        for (path, directory) in &read_only {
            blueprint.roots.push(named(path.as_str(), which(directory).map_err(refused)?));
        }
        let Identity { device, inode, owner } = profile.identity;
        blueprint.roots.push(named(profile.workspace.as_str(), (device, inode)));
        if user.is_some() {
            let etc = open_directory(self.etc.path())?;
            let read_only = read_only.into_iter().map(|(path, directory)| (path.as_str(), directory));
            let mounted = std::iter::once(("/etc", etc)).chain(read_only);
            // The machine's own is there then.
            #[cfg(weak)]
            let mounted = mounted.filter(|_| !crate::weak::is_off(crate::blueprint::weakness::MOUNTS));
            for (path, directory) in mounted {
                directories.push(directory);
                mounts.push(Mount { owner: [0, 0], read_only: true });
                blueprint.mounts.push(path.as_bytes().to_vec());
            }
            mounts.push(Mount { owner: owner.map(u64::from), read_only: false });
            blueprint.mounts.push(profile.workspace.as_str().as_bytes().to_vec());
        }
        let launch = Launch {
            program: self.program.as_os_str().as_bytes().to_vec(),
            args: self.arguments(profile).into_iter().map(String::into_bytes).collect(),
            cgroups: cgroup.as_ref().map_or(0, |cgroup| cgroup.controllers().len() as u64),
            user: user.as_ref().map(|user| [u64::from(user.id()); 2]),
            mounts,
            #[cfg(weak)]
            weaknesses: crate::weak::weaknesses(),
        };
        Ok(Construction { launch, blueprint, cgroup, user, directories, etc: Arc::clone(&self.etc) })
    }

    /// The directories that a profile's programs are given to read, which are those that were configured.
    fn read_only<'a>(&'a self, profile: &'a Profile) -> Result<Vec<(&'a AbsolutePath, OwnedFd)>, Error> {
        let mut opened = Vec::new();
        #[cfg(weak)]
        if crate::weak::is_off(crate::blueprint::weakness::MOUNTS) {
            return Ok(opened);
        }
        for path in profile.mounted_read_only(&self.system) {
            let directory = open_directory(Path::new(path.as_str()))?;
            // SECURITY: it may lie where programs of another workspace can put something else, such as a link to what is nobody's business.
            let known = self.read_only.get(Path::new(path.as_str()));
            if known.is_some_and(|known| which(&directory).ok() != Some(*known)) {
                let what = "this is not the directory that it was when the configuration was read:";
                return Err(Error::about(Kind::Changed, what, path.as_str()));
            }
            opened.push((path, directory));
        }
        Ok(opened)
    }

    fn blueprint(&self, profile: &Profile) -> Blueprint {
        let bytes = |path: &str| path.as_bytes().to_vec();
        let filters = self.filters(profile);
        let read_only = profile.read_only.iter().map(AbsolutePath::as_str);
        let secrets = profile.has_secret_files.then_some(SECRETS);
        Blueprint {
            mounts: Vec::new(),
            roots: Vec::new(),
            programs: self.system.paths().chain(read_only).map(bytes).collect(),
            readable: ["/etc", "/proc", "/var"].into_iter().chain(secrets).map(bytes).collect(),
            devices: vec![bytes("/dev")],
            writable: ["/tmp", "/dev/shm", profile.workspace.as_str()].map(bytes).to_vec(),
            hidden: hidden_as_bytes(&self.hidden(profile)),
            filters: filters.silent.clone(),
            noticed: [filters.noticed.clone(), filters.unnoticed.clone()],
            noticed_error: NOTICED_ERROR,
            network: match &profile.network {
                NetworkKind::Machine => None,
                NetworkKind::Own(ports) => {
                    Some(Network { addresses: ADDRESSES, proxy: PROXY_PORT, ports: ports.iter().copied().collect() })
                }
            },
            added_to: Vec::new(),
            added: Vec::new(),
            secrets: Vec::new(),
            #[cfg(weak)]
            weaknesses: crate::weak::weaknesses(),
        }
    }

    /// What is to be hidden in what an enclosure holds of this machine. Other directories do not exist there, and hiding them would only keep
    /// programs from what is at the same path inside, such as temporary files.
    fn hidden(&self, profile: &Profile) -> Vec<PathBuf> {
        let held = |hidden: &&AbsolutePath| {
            let of = |directory: &AbsolutePath| hidden.is_within(directory) || directory.is_within(hidden);
            self.system.holds(hidden) || profile.read_only.iter().chain([&profile.workspace]).any(of)
        };
        profile.hidden.iter().filter(held).map(|path| PathBuf::from(path.as_str())).collect()
    }

    /// The filters of an enclosure whose programs may not use Unix sockets.
    #[must_use]
    pub const fn default_filters(&self) -> &Filters {
        let [(_, refuse), _] = &self.filters;
        refuse
    }

    /// The filters of an enclosure.
    #[must_use]
    pub fn filters(&self, profile: &Profile) -> &Filters {
        let [(_, refuse), (_, allow)] = &self.filters;
        match profile.unix_sockets {
            UnixSockets::Refuse => refuse,
            UnixSockets::Allow => allow,
        }
    }

    /// The layers that namespaces make, of which none may be this machine's own.
    pub fn namespaces(&self, inside: [u64; 7], profile: &Profile) -> Result<Vec<Layer>, Error> {
        let mut layers = Vec::new();
        for ((&kind, inside), outside) in Namespace::ALL.iter().zip(inside).zip(self.own) {
            let wanted = kind != Namespace::Network || matches!(profile.network, NetworkKind::Own(_));
            let has = inside != 0 && inside != outside;
            match (has, wanted, kind) {
                (true, ..) => layers.push(Layer::Namespace(kind)),
                (false, false, _) | (false, true, Namespace::Cgroup) => {}
                (false, true, _) => {
                    let what = format!("the enclosure has no {kind} of its own, so it is none");
                    return Err(Error::new(Kind::Unavailable, what));
                }
            }
        }
        Ok(layers)
    }
}

/// The users that enclosures of a root daemon run as: one for each, for as long as it is there.
#[derive(Debug)]
pub struct Users {
    first: u32,
}

/// One of them.
#[derive(Debug)]
pub struct User {
    id: u32,
}

impl Users {
    const fn from(first: u32) -> Self {
        Self { first }
    }

    fn take(&self) -> Result<User, Error> {
        let mut taken = taken();
        let free = (self.first..self.first.saturating_add(MOST_USERS)).find(|id| !taken.contains(id));
        let id = free.ok_or_else(|| Error::new(Kind::SpawnFailed, "there are too many enclosures at once"))?;
        taken.insert(id);
        Ok(User { id })
    }
}

impl User {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for User {
    fn drop(&mut self) {
        taken().remove(&self.id);
    }
}

/// The users that are in use: by this process as a whole, since enclosures may outlast the configuration that they were made for.
fn taken() -> MutexGuard<'static, BTreeSet<u32>> {
    static TAKEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which directory this is: its device, and its number there.
fn which(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let Stamp { device, inode, .. } = Stamp::from(&status_of(directory)?);
    Ok((device, inode))
}

fn named(path: &str, (device, inode): (u64, u64)) -> Named {
    Named { path: path.as_bytes().to_vec(), device, inode }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        Error::about(Kind::DirectoryUnusable, &format!("{}:", io::Error::from(errno)), &path.to_string_lossy())
    })
}

fn find_bubblewrap(configured: Option<&Path>) -> Result<PathBuf, Error> {
    let missing = || Error::new(Kind::Unavailable, "bubblewrap is not installed");
    let candidates = configured.map_or_else(|| PLACES.map(PathBuf::from).to_vec(), |path| vec![path.to_owned()]);
    let found = candidates.into_iter().find(|path| path.is_file()).ok_or_else(missing)?;
    // SECURITY: it builds the walls, so nobody but root, or whoever runs the daemon, may be able to exchange it.
    let owner = fs::metadata(&found).map_err(|_| missing())?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(Error::about(Kind::Unavailable, "somebody else could exchange", &found.to_string_lossy()));
    }
    Ok(found)
}

#[expect(clippy::disallowed_methods, reason = "it is asked for its version, once")]
fn version_of(program: &Path) -> io::Result<String> {
    let mut command = Command::new(program);
    let said = command.arg("--version").env_clear().stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_ascii_whitespace().last().unwrap_or_default();
    match version.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(version.to_owned()),
        false => Err(io::Error::other("it does not tell its version")),
    }
}

/// Where bubblewrap is.
const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];

/// The addresses that stand for hosts inside: a range that is for tests of networks and leads nowhere.
pub const ADDRESSES: ([u8; 4], u8) = ([198, 18, 0, 0], 15);

/// The port of the proxy, at 127.0.0.1.
pub const PROXY_PORT: u16 = 3128;

/// How many enclosures there can be at once for a root daemon.
const MOST_USERS: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enclosures_of_two_configurations_never_share_a_user() {
        let [one, other] = [3_000_000_000; 2].map(Users::from);
        let (first, second) = (one.take().unwrap(), other.take().unwrap());
        assert_ne!(first.id(), second.id());
        let free = first.id();
        drop(first);
        assert_eq!(other.take().unwrap().id(), free);
    }
}
