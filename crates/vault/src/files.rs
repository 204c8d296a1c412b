//! Files and directories that are their owner's alone.
//!
//! Guarantees: what is opened is a regular file of ours that nobody else can read or write, asked of the open file and not of its name, and
//! no link; what is created did not exist. On systems without Unix permissions, those of the directory are what protects.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::Path,
};

/// Opens a file that is ours alone, to read it.
pub(crate) fn open_own(path: &Path) -> Result<File, OwnError> {
    check(open(OpenOptions::new().read(true), path)?)
}

/// Opens a file that is ours alone, to read and change it.
pub(crate) fn open_own_to_change(path: &Path) -> Result<File, OwnError> {
    check(open(OpenOptions::new().read(true).write(true), path)?)
}

/// Creates a file that is ours alone.
pub(crate) fn create_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a directory that only its owner can enter, unless there is one.
pub(crate) fn make_own_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Makes what was created, renamed or removed in a directory survive a power cut.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

/// Reads exactly so many bytes from somewhere in a file, whatever others read of it meanwhile.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset);
    #[cfg(windows)]
    {
        let read = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if read == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Why a file is not opened.
#[derive(Debug)]
pub(crate) enum OwnError {
    /// Somebody else's, or open to others.
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix says so"))]
    OpenToOthers,
    /// A link, a pipe, a directory.
    NotRegular,
    /// The file system says no.
    Io(io::Error),
}

impl From<io::Error> for OwnError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn open(options: &mut OpenOptions, path: &Path) -> Result<File, OwnError> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        // A pipe in its place must not make this wait.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, i32::try_from(flags.bits()).unwrap_or_default());
    }
    match options.open(path) {
        #[cfg(unix)]
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Err(OwnError::NotRegular),
        opened => Ok(opened?),
    }
}

fn check(file: File) -> Result<File, OwnError> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(OwnError::NotRegular);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o077 != 0 {
            return Err(OwnError::OpenToOthers);
        }
    }
    Ok(file)
}
