//! Bubblewrap's part of an enclosure: the arguments that it is started with.
//!
//! Guarantees: the tree of mounts starts empty, and holds the system's programs to be read, a generated `/etc`, a few devices, `/proc`,
//! temporary files of a bounded size and the workspace; no socket, no `/run` but for the secrets of a call, no `/sys`, nothing of anybody's home. No mount point lies
//! inside a workspace, where a link could lead it elsewhere (CVE-2026-87766).
//! Does not: hold anything itself. The init inside adds the network's sockets, Landlock, the filters and the limits.

use std::{fs, io, path::PathBuf};

use palyra_types::path::AbsolutePath;

use super::profile::{NetworkKind, Profile};
use crate::blueprint::SECRETS;

/// What the directories of the system are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemTree(Vec<(String, Entry)>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// A link, as `/bin` is one to `usr/bin` today.
    Link(String),
    /// A directory.
    Directory,
}

impl SystemTree {
    /// Looks at what this machine has.
    ///
    /// # Errors
    /// When there is no `/usr`.
    pub fn of_this_machine() -> io::Result<Self> {
        fs::metadata("/usr")?;
        let look = |name: &&str| {
            let path = format!("/{name}");
            let status = fs::symlink_metadata(&path).ok()?;
            let entry = if status.is_symlink() {
                Entry::Link(fs::read_link(&path).ok()?.to_str()?.to_owned())
            } else {
                Entry::Directory
            };
            Some((path, entry))
        };
        Ok(Self(SYSTEM.iter().filter_map(look).collect()))
    }

    /// Whether a directory is among them.
    pub fn holds(&self, path: &AbsolutePath) -> bool {
        self.0.iter().any(|(system, _)| AbsolutePath::parse(system).is_ok_and(|system| path.is_within(&system)))
    }

    /// The paths that programs are in.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, entry)| *entry == Entry::Directory).map(|(path, _)| path.as_str())
    }
}

/// Where directories come from that bubblewrap cannot bind itself, or must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// Bubblewrap binds them by their paths, and what is there is compared afterwards.
    ByPath {
        /// The generated `/etc`.
        etc: PathBuf,
    },
    /// They are mounted by the init, from descriptors.
    ByDescriptor,
}

/// The arguments, bubblewrap's own name first. The init is to be found at this descriptor.
#[must_use]
pub fn arguments(profile: &Profile, system: &SystemTree, binding: &Binding, init: i32) -> Vec<String> {
    let mut args = Arguments::begin(profile);
    for (path, entry) in &system.0 {
        match entry {
            Entry::Link(target) => args.add(["--symlink", target, path]),
            Entry::Directory => args.add(["--ro-bind", path, path]),
        }
    }
    args.add(["--proc", "/proc", "--dir", "/dev"]);
    for device in DEVICES {
        args.add(["--dev-bind", device, device]);
    }
    for (target, link) in LINKS {
        args.add(["--symlink", target, link]);
    }
    let bytes = profile.temporary_bytes.to_string();
    args.add(["--dir", "/dev/pts", "--perms", "1777", "--size", &bytes, "--tmpfs", "/dev/shm"]);
    args.add(["--perms", "1777", "--size", &bytes, "--tmpfs", "/tmp", "--dir", HOME, "--dir", "/var"]);
    // Relative: bubblewrap makes mount points before the tree is the root, and an absolute link would lead it elsewhere.
    args.add(["--symlink", "../tmp", "/var/tmp"]);
    match binding {
        Binding::ByPath { etc } => args.add(["--ro-bind", &etc.to_string_lossy(), "/etc"]),
        Binding::ByDescriptor => args.add(["--dir", "/etc"]),
    }
    if profile.has_secret_files {
        // Only where the init puts them.
        args.add(["--dir", SECRETS]);
    }
    for path in profile.mounted_read_only(system) {
        args.mount("--ro-bind", path, binding);
    }
    // Last, so that nothing is mounted on what it holds.
    args.mount("--bind", &profile.workspace, binding);
    args.add(["--remount-ro", "/"]);
    args.end(init)
}

/// The arguments for an enclosure that holds most of the machine, and may change what its user may change, to show what the tree of mounts is
/// for. What stands beside the workspace is there, too, but for the trial, whose workspace lies among what is nobody else's.
#[cfg(weak)]
pub fn arguments_with_the_machine(profile: &Profile, system: &SystemTree, binding: &Binding, init: i32) -> Vec<String> {
    let mut args = Arguments::begin(profile);
    for (path, entry) in &system.0 {
        match entry {
            Entry::Link(target) => args.add(["--symlink", target, path]),
            Entry::Directory => args.add(["--bind", path, path]),
        }
    }
    args.add([
        "--proc",
        "/proc",
        "--dev-bind",
        "/dev",
        "/dev",
        "--tmpfs",
        "/dev/shm",
        "--tmpfs",
        "/tmp",
        "--dir",
        HOME,
    ]);
    for path in ["/etc", "/var", "/root", "/home", "/run", "/sys", "/boot", "/mnt"] {
        args.add(["--bind-try", path, path]);
    }
    if let Some(above) = profile.workspace.ancestors().next().filter(|_| !profile.principal.is_empty()) {
        args.add(["--bind", above, above]);
    }
    args.mount("--bind", &profile.workspace, binding);
    args.end(init)
}

/// Where programs may leave what they put into a home. It is empty, and gone afterwards.
pub const HOME: &str = "/tmp/home";

/// The user that programs are in an enclosure, whoever that is outside.
pub const USER: &str = "1000";

struct Arguments(Vec<String>);

impl Arguments {
    /// Namespaces, and who is inside.
    fn begin(profile: &Profile) -> Self {
        let mut args = Self(vec!["bwrap".to_owned()]);
        args.add(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
        if matches!(profile.network, NetworkKind::Own(_)) {
            args.add(["--unshare-net"]);
        }
        args.add(["--uid", USER, "--gid", USER, "--hostname", "sandbox"]);
        args
    }

    /// What the init needs for its own part, and the init.
    fn end(mut self, init: i32) -> Vec<String> {
        // The last one is for covering what is hidden, whatever a tool before has closed on the way to it.
        let capabilities =
            ["CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETPCAP", "CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"];
        for capability in capabilities {
            self.add(["--cap-add", capability]);
        }
        self.add(["--as-pid-1", "--", &format!("/proc/self/fd/{init}"), "enclosed"]);
        self.0
    }

    fn add<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) {
        self.0.extend(words.into_iter().map(str::to_owned));
    }

    /// A directory at the same path.
    fn mount(&mut self, how: &str, path: &AbsolutePath, binding: &Binding) {
        match binding {
            Binding::ByPath { .. } => self.add([how, path.as_str(), path.as_str()]),
            // Only where it is mounted later.
            Binding::ByDescriptor => self.add(["--dir", path.as_str()]),
        }
    }
}

/// The directories of programs and libraries, as far as they exist.
const SYSTEM: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The devices that programs cannot do without.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier_c::profile::example;

    fn system() -> SystemTree {
        let link = |name: &str, to: &str| (format!("/{name}"), Entry::Link(to.to_owned()));
        SystemTree(vec![("/usr".to_owned(), Entry::Directory), link("bin", "usr/bin"), link("lib", "usr/lib")])
    }

    /// One option with its words on each line.
    fn lines(args: &[String]) -> String {
        let mut text = String::new();
        for arg in args {
            text.push_str(if arg.starts_with("--") && !text.is_empty() { "\n" } else { " " });
            text.push_str(arg);
        }
        text.trim_start().to_owned() + "\n"
    }

    #[test]
    fn an_ordinary_user_has_bubblewrap_bind_everything() {
        let binding = Binding::ByPath { etc: "/srv/state/sandbox/etc".into() };
        let args = arguments(&example("/srv/shop"), &system(), &binding, 5);
        assert_eq!(lines(&args), include_str!("golden/bubblewrap_user.txt"));
    }

    #[test]
    fn root_hands_directories_over_and_bubblewrap_makes_only_their_places() {
        let args = arguments(&example("/srv/shop"), &system(), &Binding::ByDescriptor, 5);
        assert_eq!(lines(&args), include_str!("golden/bubblewrap_root.txt"));
    }

    #[test]
    fn there_is_a_place_for_secrets_only_where_there_are_any() {
        let profile = Profile { has_secret_files: true, ..example("/w") };
        let args = arguments(&profile, &system(), &Binding::ByDescriptor, 5);
        let without = arguments(&example("/w"), &system(), &Binding::ByDescriptor, 5);
        let added: Vec<&String> = args.iter().filter(|arg| !without.contains(arg)).collect();
        assert_eq!(added, [SECRETS]);
    }

    #[test]
    fn no_mount_point_lies_inside_the_workspace() {
        let mut profile = example("/srv/shop");
        profile.read_only.push(AbsolutePath::parse("/srv/shop/vendor").unwrap());
        let args = arguments(&profile, &system(), &Binding::ByDescriptor, 5);
        assert!(!args.iter().any(|arg| arg.starts_with("/srv/shop/")), "{args:?}");
    }

    #[test]
    fn the_network_of_the_machine_is_shared_only_where_the_profile_says_so() {
        let own = arguments(&example("/w"), &system(), &Binding::ByDescriptor, 5);
        let profile = Profile { network: NetworkKind::Machine, ..example("/w") };
        let shared = arguments(&profile, &system(), &Binding::ByDescriptor, 5);
        assert!(own.contains(&"--unshare-net".to_owned()) && !shared.contains(&"--unshare-net".to_owned()));
    }

    /// A workspace in `/var/tmp` had no enclosure.
    #[test]
    fn no_mount_point_is_reached_by_an_absolute_link() {
        let (system, binding) = (SystemTree(Vec::new()), Binding::ByDescriptor);
        let args = arguments(&example("/var/tmp/project"), &system, &binding, 5);
        let links: Vec<&[String]> = args.windows(3).filter(|words| words[0] == "--symlink").collect();
        let leads_to =
            |path: &str| links.iter().find(|words| path.starts_with(&words[2])).map(|words| words[1].as_str());
        assert_eq!(leads_to("/var/tmp/project"), Some("../tmp"));
    }
}
