//! Landlock: hides directories from the program and keeps its signals and its tracing within its tree.
//!
//! Guarantees: nothing at or beneath a hidden directory can be opened, listed, made, renamed, truncated or removed, by root
//! neither. No signal reaches a process outside the tree, and none can be traced. A kernel that has Landlock but refuses a step
//! stops the start.
//! Does not: hide sockets from `connect`, modes, owners, times and attributes from being looked at or changed, nor what is mounted a
//! second time elsewhere.
//!
//! Landlock can only allow, and what it allows holds for everything beneath. So the directories *above* a hidden one get no
//! rule of their own, and each of their other entries gets one. That costs the program something: it can neither list those
//! directories nor make, rename or remove entries directly in them. Under any of these rules it cannot mount.

use alloc::{ffi::CString, vec, vec::Vec};

use crate::{
    blueprint::Blueprint,
    kernel::{self, Errno, Open},
    protocol::layer,
};

/// What this kernel has of Landlock.
pub struct Landlock {
    version: u32,
}

impl Landlock {
    pub fn of_this_kernel() -> Self {
        Self { version: kernel::landlock_version().unwrap_or(0) }
    }

    /// The version; zero without it.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Puts the calling process under rules that hide these directories, and returns the layers that are active for it.
    ///
    /// Rules that were built before may be given, which spares looking at every neighbour of what is hidden.
    pub fn restrict(&self, hidden: &[Vec<u8>], built: Option<i32>) -> Result<u64, Errno> {
        if self.version < WALLS_SINCE {
            return Ok(0);
        }
        let rules = built.map_or_else(|| self.build(hidden), Ok)?;
        kernel::landlock_restrict(rules)?;
        let bit = |active, layer| if active { layer } else { 0 };
        let hides = bit(!hidden.is_empty(), layer::HIDDEN_PATHS);
        Ok(hides | bit(self.version >= SCOPES_SINCE, layer::SIGNAL_SCOPE) | layer::NO_TRACE)
    }

    /// Puts the calling process under the rules of an enclosure: what the blueprint lists can be used as it says, and nothing else.
    pub fn enclose(&self, blueprint: &Blueprint) -> Result<u64, Errno> {
        #[cfg(weak)]
        if blueprint.is_without(crate::blueprint::weakness::LANDLOCK) {
            return Ok(0);
        }
        let Blueprint { programs, readable, devices, writable, hidden, .. } = blueprint;
        let handled = match self.version {
            0 => return Err(Errno(kernel::EINVAL)),
            1 => FIRST,
            2 => FIRST | REFER,
            3 | 4 => FIRST | REFER | TRUNCATE,
            _ => FIRST | REFER | TRUNCATE | CONTROL_DEVICES,
        };
        let scopes = if self.version >= SCOPES_SINCE { SCOPE_SIGNAL | SCOPE_SOCKETS } else { 0 };
        let rules = kernel::landlock_create(handled, scopes)?;
        let nowhere = hidden.is_empty().then(|| b"/".to_vec());
        let lists = [
            (programs.as_slice(), EXECUTE | READ),
            (readable, READ),
            (devices, READ | WRITE | TRUNCATE | CONTROL_DEVICES),
            (writable, EVERYTHING & !MAKE_DEVICES),
            // Everything beneath can be listed then, so not where something is hidden.
            (nowhere.as_slice(), LIST),
        ];
        for (paths, access) in lists {
            for path in paths {
                let access = access & handled;
                if hidden.iter().any(|hidden| is_within(hidden, path)) {
                    allow_around(rules, path, hidden, access)?;
                } else if !hidden.iter().any(|hidden| is_within(path, hidden)) {
                    allow(rules, path, None, access)?;
                }
            }
        }
        kernel::landlock_restrict(rules)?;
        kernel::close(rules);
        let scoped = if scopes > 0 { layer::SIGNAL_SCOPE | layer::SOCKET_SCOPE } else { 0 };
        Ok(layer::LISTED_PATHS | layer::NO_TRACE | scoped)
    }

    /// Rules that hide these directories.
    pub fn build(&self, hidden: &[Vec<u8>]) -> Result<i32, Errno> {
        if self.version < WALLS_SINCE {
            return Err(Errno(kernel::EINVAL));
        }
        let scopes = if self.version >= SCOPES_SINCE { SCOPE_SIGNAL } else { 0 };
        let rules = kernel::landlock_create(EVERYTHING, scopes)?;
        if hidden.is_empty() {
            // SECURITY: with every access handled and allowed everywhere, the program still cannot trace what is outside its
            // tree, the daemon's memory included. A rule set that handles no file access would not have that effect.
            allow(rules, b"/", None, EVERYTHING)?;
        } else {
            allow_around(rules, b"/", hidden, EVERYTHING)?;
        }
        Ok(rules)
    }
}

/// Allows every entry of `directory` except those that are hidden or lead to something hidden, where it goes deeper.
fn allow_around(rules: i32, directory: &[u8], hidden: &[Vec<u8>], access: u64) -> Result<(), Errno> {
    // A directory that cannot be listed allows nothing beneath it: hiding too much is the safe side.
    let Some(listed) = open(directory, Open::Read)? else { return Ok(()) };
    let mut deeper: Vec<Vec<u8>> = Vec::new();
    let mut buffer = vec![0; 4 << 10];
    loop {
        let mut more = false;
        for entry in unless_short(kernel::read_entries(listed, &mut buffer))?.into_iter().flatten() {
            more = true;
            if matches!(entry.name, b"." | b"..") || entry.is_link() {
                continue;
            }
            let path = [directory, if directory == b"/" { b"" } else { b"/" }, entry.name].concat();
            if hidden.iter().any(|hidden| is_within(hidden, &path)) {
                deeper.push(path);
            } else {
                allow(rules, &path, entry.is_known().then_some(entry.is_directory()), access)?;
            }
        }
        if !more {
            break;
        }
    }
    kernel::close(listed);
    deeper.retain(|path| !hidden.contains(path));
    deeper.iter().try_for_each(|path| allow_around(rules, path, hidden, access))
}

/// Whether a path is `directory` or lies below it.
fn is_within(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Allows some access beneath a directory, or with a file. Who does not know which of them it is leaves that to be found out.
fn allow(rules: i32, path: &[u8], is_directory: Option<bool>, access: u64) -> Result<(), Errno> {
    const DIRECTORY: u64 = 0o040_000;
    const LINK: u64 = 0o120_000;
    // What has vanished since, or cannot be named by this user, needs no rule.
    let Some(file) = open(path, Open::Name)? else { return Ok(()) };
    let is_directory = match is_directory {
        Some(is_directory) => Ok(Some(is_directory)),
        None => kernel::file_type(file).map(|kind| (kind != LINK).then_some(kind == DIRECTORY)),
    };
    let allowed = match is_directory {
        Ok(Some(is_directory)) => {
            kernel::landlock_allow(rules, file, if is_directory { access } else { access & OF_FILES })
        }
        _ => Ok(()),
    };
    kernel::close(file);
    match allowed {
        // A directory became a file in between; it is left out.
        Err(Errno(kernel::EINVAL)) => Ok(()),
        other => other,
    }
}

/// Opens a file, if there is one that this user may open.
fn open(path: &[u8], how: Open) -> Result<Option<i32>, Errno> {
    CString::new(path).map_or(Ok(None), |path| unless_short(kernel::open(&path, how)))
}

/// A program that could use less than it may, only because the machine was short of something, would not run as planned. The rules
/// may also be kept for others.
fn unless_short<T>(answer: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match answer {
        Err(errno) if errno.is_shortage() => Err(errno),
        other => Ok(other.ok()),
    }
}

/// Version 2 can let files move between directories, version 3 can hold back `truncate`: before those, hiding would either break
/// ordinary programs or be no hiding.
const WALLS_SINCE: u32 = 3;
const SCOPES_SINCE: u32 = 6;
const SCOPE_SIGNAL: u64 = 1 << 1;
const SCOPE_SOCKETS: u64 = 1;
/// All fifteen accesses of version 3, `execute` to `truncate`.
const EVERYTHING: u64 = FIRST | REFER | TRUNCATE;
/// Those of version 1, `execute` to `make a link`.
const FIRST: u64 = 0x1fff;
const EXECUTE: u64 = 1;
const WRITE: u64 = 1 << 1;
const LIST: u64 = 1 << 3;
/// Files and directories.
const READ: u64 = 1 << 2 | LIST;
/// Character and block devices.
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;
/// To move a file to another directory, or link it there. Since version 2.
const REFER: u64 = 1 << 13;
/// Since version 3.
const TRUNCATE: u64 = 1 << 14;
/// Since version 5.
const CONTROL_DEVICES: u64 = 1 << 15;
/// The accesses that a file can have.
const OF_FILES: u64 = EXECUTE | WRITE | 1 << 2 | TRUNCATE | CONTROL_DEVICES;
