//! Whether anybody but root could change what a path leads to.
//!
//! Guarantees: every directory, link and file on the way is looked at, where links lead too; when in doubt, the answer is yes.
//! Does not: know of capabilities, or of what root itself lets others do.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// Whether anybody but root could change the file that an absolute path leads to, or make the path lead to another.
#[must_use]
pub fn is_changeable(path: &Path) -> bool {
    only_roots(path) != Some(true)
}

fn only_roots(path: &Path) -> Option<bool> {
    if !path.is_absolute() {
        return None;
    }
    let mut here = PathBuf::from("/");
    let mut ahead = steps(path);
    let mut links = 0;
    if is_anybodys(&fs::symlink_metadata(&here).ok()?) {
        return Some(false);
    }
    while let Some(step) = ahead.pop() {
        if step == ".." {
            here.pop();
            continue;
        }
        let next = here.join(step);
        let status = fs::symlink_metadata(&next).ok()?;
        if is_anybodys(&status) {
            return Some(false);
        }
        if !status.is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        let target = fs::read_link(&next).ok().filter(|_| links <= MOST_LINKS)?;
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        ahead.extend(steps(&target));
    }
    Some(true)
}

/// The steps of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let kept = path.components().filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir));
    kept.rev().map(|step| step.as_os_str().to_owned()).collect()
}

fn is_anybodys(status: &fs::Metadata) -> bool {
    // The permission bits of a link mean nothing.
    status.uid() != 0 || (!status.is_symlink() && status.mode() & 0o022 != 0)
}

/// As many as the kernel follows.
const MOST_LINKS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_only_root_can_change_is_told_from_what_others_can() {
        for path in ["/", "/usr/bin", "/bin/sh", "/usr/bin/../bin/env"] {
            assert!(!is_changeable(path.as_ref()), "{path}");
        }
        for path in ["/tmp", "/tmp/x", "/no/such/file", "relative", ""] {
            assert!(is_changeable(path.as_ref()), "{path}");
        }
    }

    #[test]
    fn a_link_in_a_place_of_others_makes_all_behind_it_changeable() {
        let place = tempfile::tempdir().unwrap();
        symlink("/usr/bin/env", place.path().join("link")).unwrap();
        symlink("loop", place.path().join("loop")).unwrap();
        assert!(is_changeable(&place.path().join("link")));
        assert!(is_changeable(&place.path().join("loop")));
    }
}
