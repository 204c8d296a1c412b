//! What the machine looks like from outside: what no attack may change, and what belongs to a laboratory's enclosures.
//!
//! Does not: mind what others do on this machine meanwhile, such as mounts of other tests below the directory for temporary files.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// What no attack may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    settings: Vec<(String, String)>,
    mounts: BTreeSet<String>,
    canaries: Vec<(PathBuf, String, u32, u32, i64)>,
    beside: BTreeSet<PathBuf>,
}

impl Host {
    /// As it is now. Canaries are all files below a directory.
    pub fn now(root: &Path, outside: &Path) -> Self {
        let settings = SETTINGS.iter().map(|path| ((*path).to_owned(), fs::read_to_string(path).unwrap_or_default()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let temporary = std::env::temp_dir();
        let of_others = |point: &str| {
            let point = Path::new(point);
            (point.starts_with(&temporary) && !point.starts_with(root)) || point.starts_with("/run/netns")
        };
        let mounts = mounts.lines().filter(|line| !line.split(' ').nth(4).is_some_and(of_others));
        let canaries = walk(outside).into_iter().map(|path| {
            let status = fs::symlink_metadata(&path).unwrap();
            let content = fs::read_to_string(&path).unwrap_or_default();
            (path, content, status.mode(), status.uid(), status.mtime_nsec())
        });
        let beside = fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
        Self {
            settings: settings.collect(),
            mounts: mounts.map(str::to_owned).collect(),
            canaries: canaries.collect(),
            beside: beside.collect(),
        }
    }

    /// What differs from an earlier look.
    pub fn changes(&self, before: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for ((path, now), (_, then)) in self.settings.iter().zip(&before.settings).filter(|(now, then)| now != then) {
            changes.push(format!("{path} was {then:?} and is {now:?}"));
        }
        changes.extend(self.mounts.symmetric_difference(&before.mounts).map(|mount| format!("mount: {mount}")));
        changes
            .extend(self.beside.symmetric_difference(&before.beside).map(|path| format!("file: {}", path.display())));
        if self.canaries != before.canaries {
            changes.push(format!("files outside were {:?} and are {:?}", before.canaries, self.canaries));
        }
        changes
    }
}

/// What is wrong with files that were left in a workspace: they run as their owner, or belong to somebody else.
pub fn wrong_files(workspace: &Path) -> Vec<String> {
    let owner = fs::metadata(workspace).unwrap();
    let wrong = |path: PathBuf| {
        let status = fs::symlink_metadata(&path).ok()?;
        let runs_as_owner = status.mode() & 0o6000 != 0;
        let foreign = (status.uid(), status.gid()) != (owner.uid(), owner.gid());
        let (mode, whose) = (status.mode(), status.uid());
        (runs_as_owner || foreign).then(|| format!("{} has mode {mode:o} and belongs to {whose}", path.display()))
    };
    walk(workspace).into_iter().filter_map(wrong).collect()
}

/// A process that has to do with a laboratory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number on this machine.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its network, as the kernel names it.
    pub network: String,
    /// How it was started.
    pub command: String,
}

/// The processes with this mark in their environment.
pub fn marked(mark: &str) -> Vec<u32> {
    let has_it = |pid: &u32| contains(&format!("/proc/{pid}/environ"), mark);
    pids().into_iter().filter(|pid| *pid != std::process::id()).filter(has_it).collect()
}

/// The processes of the enclosures of a laboratory: those that see its directory mounted, and bubblewrap, which is told of it.
pub fn enclosed(root: &Path) -> Vec<Process> {
    let named = root.to_str().unwrap();
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let belongs = |pid: &u32| {
        let elsewhere = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok().is_some_and(|link| Some(link) != own);
        elsewhere && contains(&format!("/proc/{pid}/mountinfo"), named)
            || (contains(&format!("/proc/{pid}/cmdline"), named)
                && contains(&format!("/proc/{pid}/cmdline"), "--unshare-user"))
    };
    pids().into_iter().filter(belongs).filter_map(process).collect()
}

/// The children of a process, whichever of its threads has started them.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let list = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.map(list).flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn process(pid: u32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // One that is over and waits to be collected holds nothing any more.
    let is_over = status.lines().any(|line| line.starts_with("State:") && line.contains('Z'));
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    let network = fs::read_link(format!("/proc/{pid}/ns/net")).map(|link| link.display().to_string());
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    (!is_over).then(|| Process { pid, parent, network: network.unwrap_or_default(), command })
}

/// The cgroups that a daemon has made for enclosures.
pub fn cgroups(daemon: u32) -> Vec<PathBuf> {
    let prefix = format!("enclosure-{daemon}-");
    let [mounts, own] = ["/proc/self/mounts", "/proc/self/cgroup"].map(|path| fs::read_to_string(path).unwrap());
    let places = mounts.lines().filter(|line| line.contains(" cgroup")).filter_map(|line| line.split(' ').nth(1));
    // Where this test itself is, the daemon is.
    let own: BTreeSet<&str> = own.lines().filter_map(|line| line.splitn(3, ':').nth(2)).chain(["/"]).collect();
    let mut made = BTreeSet::new();
    for (place, own) in places.flat_map(|place| own.iter().map(move |own| (place, own))) {
        let directory = Path::new(place).join(own.trim_start_matches('/')).join("palyra");
        made.extend(fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    let of_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    made.into_iter().filter(of_it).collect()
}

/// Everything below a directory, without following links.
pub fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(walk(&entry.path()));
        }
    }
    found.sort();
    found
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn contains(file: &str, text: &str) -> bool {
    let content = fs::read(file).unwrap_or_default();
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

const SETTINGS: &[&str] = &[
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/swaps",
    "/proc/modules",
];
