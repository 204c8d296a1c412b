//! The init as a file that can be executed: embedded in this crate, kept in memory, sealed.
//!
//! Guarantees: what runs is what was built, since nobody can write to it or replace it; it needs no place on the disk.
//! Refuses: to work where the kernel executes no memory files.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::fs::{MemfdFlags, SealFlags};

/// The init, ready to be executed.
#[derive(Debug)]
pub struct Image(OwnedFd);

impl Image {
    /// Puts the init into memory.
    pub fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know that memory files may be told to be programs, and take all for such.
        let file = rustix::fs::memfd_create(c"palyra-init", flags | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create(c"palyra-init", flags))?;
        sealed(file, INIT).map(Self)
    }

    /// A path under which this process, and one that it spawns, can execute it.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Bytes as a file that can be read and never changed.
pub fn constant(bytes: &[u8]) -> io::Result<OwnedFd> {
    sealed(rustix::fs::memfd_create(c"stdin", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?, bytes)
}

fn sealed(file: OwnedFd, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(file);
    file.write_all(bytes)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/palyra-init"));
