//! Landlock: hides directories from the program and keeps its signals and its tracing within its tree.
//!
//! Guarantees: nothing at or beneath a hidden directory can be opened, listed, made, renamed, truncated or removed, by root
//! neither. No signal reaches a process outside the tree, and none can be traced. A kernel that has Landlock but refuses a step
//! stops the start.
//! Does not: hide sockets from `connect`, nor what is mounted a second time elsewhere.
//!
//! Landlock can only allow, and what it allows holds for everything beneath. So the directories *above* a hidden one get no
//! rule of their own, and each of their other entries gets one. That costs the program something: it can neither list those
//! directories nor make, rename or remove entries directly in them. Under any of these rules it cannot mount.

use std::{
    ffi::{CString, OsStr},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
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

    /// Rules that hide these directories.
    pub fn build(&self, hidden: &[Vec<u8>]) -> Result<i32, Errno> {
        if self.version < WALLS_SINCE {
            return Err(Errno(kernel::EINVAL));
        }
        let scopes = if self.version >= SCOPES_SINCE { SCOPE_SIGNAL } else { 0 };
        let rules = kernel::landlock_create(EVERYTHING, scopes)?;
        let hidden: Vec<PathBuf> = hidden.iter().map(|path| OsStr::from_bytes(path).into()).collect();
        if hidden.is_empty() {
            // SECURITY: with every access handled and allowed everywhere, the program still cannot trace what is outside its
            // tree, the daemon's memory included. A rule set that handles no file access would not have that effect.
            allow(rules, Path::new("/"), EVERYTHING)?;
        } else {
            allow_around(rules, Path::new("/"), &hidden)?;
        }
        Ok(rules)
    }
}

/// Allows every entry of `directory` except those that are hidden or lead to something hidden, where it goes deeper.
fn allow_around(ruleset: i32, directory: &Path, hidden: &[PathBuf]) -> Result<(), Errno> {
    // A directory that cannot be listed allows nothing beneath it: hiding too much is the safe side.
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries.flatten() {
        let path = entry.path();
        if hidden.iter().any(|hidden| *hidden == path) {
            continue;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            allow_around(ruleset, &path, hidden)?;
        } else if !kind.is_symlink() {
            allow(ruleset, &path, if kind.is_dir() { EVERYTHING } else { OF_FILES })?;
        }
    }
    Ok(())
}

fn allow(ruleset: i32, path: &Path, access: u64) -> Result<(), Errno> {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Ok(()) };
    // What has vanished since, or cannot be named by this user, needs no rule.
    let Ok(file) = kernel::open(&path, Open::Name) else { return Ok(()) };
    let allowed = kernel::landlock_allow(ruleset, file, access);
    kernel::close(file);
    match allowed {
        // A directory became a file in between; it is left out.
        Err(Errno(kernel::EINVAL)) => Ok(()),
        other => other,
    }
}

/// Version 2 can let files move between directories, version 3 can hold back `truncate`: before those, hiding would either break
/// ordinary programs or be no hiding.
const WALLS_SINCE: u32 = 3;
const SCOPES_SINCE: u32 = 6;
const SCOPE_SIGNAL: u64 = 1 << 1;
/// All fifteen accesses of version 3, `execute` to `truncate`.
const EVERYTHING: u64 = 0x7fff;
/// The accesses that a file can have: execute, write, read, truncate.
const OF_FILES: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 14;
