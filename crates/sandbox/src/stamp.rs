//! What tells whether a file or directory is as it was: which one it is, how long it is and when it changed, by the kernel's time.
//!
//! Guarantees: two equal stamps that were settled speak of an unchanged file. Does not: notice what is written through a mapping of
//! the file that was made before.

use std::{os::fd::AsFd, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Statx, StatxFlags},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use crate::protocol::Stamp;

/// What the kernel says about an open file.
pub fn status_of(entry: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(entry, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

/// The stamp of what a path leads to, links followed.
pub fn stamp_at(path: &Path) -> Option<Stamp> {
    rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok().as_ref().map(Stamp::from)
}

impl From<&Statx> for Stamp {
    fn from(status: &Statx) -> Self {
        Self {
            device: u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor),
            inode: status.stx_ino,
            size: status.stx_size,
            changed: [status.stx_ctime.tv_sec.cast_unsigned(), u64::from(status.stx_ctime.tv_nsec)],
            modified: [status.stx_mtime.tv_sec.cast_unsigned(), u64::from(status.stx_mtime.tv_nsec)],
        }
    }
}

/// Whether no later change can leave this stamp, just taken, as it is.
///
/// Older kernels know the time of a change to some milliseconds only, so a change just after another one may not show.
pub fn is_settled(stamp: &Stamp) -> bool {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    stamp.changed < [now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned()]
}
