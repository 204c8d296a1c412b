//! Files that only their owner reads, replaced whole.
//!
//! Guarantees: what is read is a regular file of ours that nobody else can read, and not a link to one; what is written is there whole or
//! not at all, also after a power cut; an interrupted write leaves the old file, and at most a `.NAME.new-PID` beside it that
//! [`tidy`] removes.
//! Does not: stop another program of the same user.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process};
use zeroize::Zeroizing;

/// Reads a file of at most so many bytes that only its owner can read.
///
/// # Errors
/// When there is none, it is not ours alone, or it is too long.
pub fn read(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, PrivateFileError> {
    let at = |error: io::Error| PrivateFileError::of(path, &error);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // What the kernel says of a link that is not to be followed.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(PrivateFileError::NotAFile(path.to_owned()));
        }
        opened => opened.map_err(at)?,
    };
    // INVARIANT: asked of the open file, not of its name, so that nobody can swap it between the look and the reading.
    let about = file.metadata().map_err(at)?;
    if !about.is_file() {
        return Err(PrivateFileError::NotAFile(path.to_owned()));
    }
    only_ours(path, &about)?;
    let mut content = Zeroizing::new(Vec::with_capacity(usize::try_from(about.len().min(most)).unwrap_or_default()));
    file.take(most.saturating_add(1)).read_to_end(&mut content).map_err(at)?;
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > most {
        return Err(PrivateFileError::TooLong { path: path.to_owned(), most });
    }
    Ok(content)
}

/// Writes a file that only its owner can read, in place of the one that may be there. Makes its directory if there is none.
///
/// # Errors
/// When the directory is not ours alone, or the disk does not take it.
pub fn write(path: &Path, content: &[u8]) -> Result<(), PrivateFileError> {
    let at = |error: io::Error| PrivateFileError::of(path, &error);
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(PrivateFileError::NotAFile(path.to_owned()));
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    make_directory(directory)?;
    let beside = directory.join(beside(name, std::process::id()));
    let written = (|| {
        let mut file = create(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        // What is left when this fails too, `tidy` removes.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(at)
}

/// Puts a file in the place of another one of the same directory, which may be there. It stays there after a power cut.
///
/// # Errors
/// When there is none, or the disk does not take it.
pub fn rename(from: &Path, to: &Path) -> Result<(), PrivateFileError> {
    fs::rename(from, to).and_then(|()| sync_directory_of(to)).map_err(|error| PrivateFileError::of(from, &error))
}

/// Removes a file, for good.
///
/// # Errors
/// When there is none, or it cannot be removed.
pub fn remove(path: &Path) -> Result<(), PrivateFileError> {
    fs::remove_file(path).and_then(|()| sync_directory_of(path)).map_err(|error| PrivateFileError::of(path, &error))
}

/// Makes a directory that only its owner can enter, unless there is one.
///
/// # Errors
/// When it cannot be made, or the one that is there can be entered by others.
pub fn make_directory(path: &Path) -> Result<(), PrivateFileError> {
    let at = |error: io::Error| PrivateFileError::of(path, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at)?;
    check_directory(path)
}

/// Whether a directory is ours alone.
///
/// # Errors
/// When it is not, or there is none.
pub fn check_directory(path: &Path) -> Result<(), PrivateFileError> {
    let about = fs::metadata(path).map_err(|error| PrivateFileError::of(path, &error))?;
    only_ours(path, &about)
}

/// Removes what interrupted writes have left behind. What another program is writing just now stays.
///
/// # Errors
/// When the directory cannot be read, or something in it not removed.
pub fn tidy(directory: &Path) -> Result<(), PrivateFileError> {
    for entry in fs::read_dir(directory).map_err(|error| PrivateFileError::of(directory, &error))? {
        let path = entry.map_err(|error| PrivateFileError::of(directory, &error))?.path();
        let Some(writer) = path.file_name().and_then(OsStr::to_str).and_then(writer_of) else { continue };
        if is_running(writer) {
            continue;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(PrivateFileError::of(&path, &error)),
            _ => {}
        }
    }
    Ok(())
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Makes the file beside. One of that name can only be left by a program that had our process id and is gone.
fn create(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            open()
        }
        opened => opened,
    }
}

fn beside(name: &OsStr, writer: u32) -> std::ffi::OsString {
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!("{MARK}{writer}"));
    beside
}

/// Who is writing, or was, a file of this name.
fn writer_of(name: &str) -> Option<i32> {
    let (_, writer) = name.strip_prefix('.')?.rsplit_once(MARK)?;
    writer.parse().ok().filter(|writer| *writer > 0)
}

fn is_running(writer: i32) -> bool {
    let Some(writer) = process::Pid::from_raw(writer) else { return false };
    // It is there if it can be asked, and also if it belongs to somebody else.
    !matches!(process::test_kill_process(writer), Err(rustix::io::Errno::SRCH))
}

fn only_ours(path: &Path, about: &fs::Metadata) -> Result<(), PrivateFileError> {
    if about.uid() != process::geteuid().as_raw() {
        return Err(PrivateFileError::NotOurs(path.to_owned()));
    }
    match about.mode() & 0o077 {
        0 => Ok(()),
        _ if about.is_dir() => Err(PrivateFileError::OpenDirectory(path.to_owned())),
        _ => Err(PrivateFileError::Open(path.to_owned())),
    }
}

/// Why a file was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrivateFileError {
    /// There is none.
    #[error("there is no `{}`", shown(.0))]
    Missing(PathBuf),
    /// A directory, a link, a pipe.
    #[error("`{}` is not a regular file", shown(.0))]
    NotAFile(PathBuf),
    /// Somebody else's.
    #[error("`{}` belongs to somebody else", shown(.0))]
    NotOurs(PathBuf),
    /// Others can read or write it.
    #[error("`{}` can be read or written by others", shown(.0))]
    Open(PathBuf),
    /// Others can enter it.
    #[error("the directory `{}` can be entered by others", shown(.0))]
    OpenDirectory(PathBuf),
    /// Longer than such a file is.
    #[error("`{}` is longer than {most} bytes", shown(.path))]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// How long it may be.
        most: u64,
    },
    /// The disk, or the right to use it.
    #[error("`{}`: {why}", shown(.path))]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

impl PrivateFileError {
    fn of(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing(path.to_owned()),
            _ => Self::Disk { path: path.to_owned(), why: error.to_string() },
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Missing(_) => "check the path",
            Self::NotAFile(_) => "put a plain file there, not a link",
            Self::NotOurs(_) => "run as the user that owns it, or `chown` it",
            Self::Open(_) => "`chmod 600` it; if somebody may have read it, replace what it holds",
            Self::OpenDirectory(_) => "`chmod 700` it",
            Self::TooLong { .. } => "this is another file than is expected there; restore the right one",
            Self::Disk { .. } => "check who owns it, and that its disk has space",
        }
    }
}

fn shown(path: &Path) -> String {
    palyra_types::visible::visible(&path.to_string_lossy())
}

const MARK: &str = ".new-";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept").join("one.json");
        (directory, path)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_written_is_read_back_and_nobody_else_can() {
        let (_directory, path) = place();
        write(&path, b"first").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(read(&path, 6).unwrap().as_slice(), b"second");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_ours_alone_is_refused() {
        let (_directory, path) = place();
        assert_eq!(read(&path, 9), Err(PrivateFileError::Missing(path.clone())));
        write(&path, b"secret").unwrap();
        assert_eq!(read(&path, 5), Err(PrivateFileError::TooLong { path: path.clone(), most: 5 }));
        for (bits, expected) in [(0o400, None), (0o640, Some(())), (0o604, Some(())), (0o620, Some(()))] {
            set_mode(&path, bits);
            let refused = expected.map(|()| PrivateFileError::Open(path.clone()));
            assert_eq!(read(&path, 9).err(), refused, "{bits:o}");
        }
        let directory = path.parent().unwrap();
        assert_eq!(read(directory, 9), Err(PrivateFileError::NotAFile(directory.to_owned())));
        let link = directory.join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(read(&link, 9), Err(PrivateFileError::NotAFile(link)));
    }

    #[test]
    fn nothing_is_written_where_others_can_enter() {
        let (_directory, path) = place();
        let parent = path.parent().unwrap();
        make_directory(parent).unwrap();
        set_mode(parent, 0o750);
        assert_eq!(write(&path, b"x"), Err(PrivateFileError::OpenDirectory(parent.to_owned())));
        assert!(!path.exists());
    }

    #[test]
    fn what_an_interrupted_write_leaves_is_tidied_and_what_is_being_written_stays() {
        let (_directory, path) = place();
        write(&path, b"kept").unwrap();
        let parent = path.parent().unwrap();
        // Process ids end far below this one.
        let dead = parent.join(".one.json.new-2000000000");
        let ours = parent.join(beside(path.file_name().unwrap(), std::process::id()));
        let unrelated = [parent.join(".one.json.new-x"), parent.join("two.new-2000000000")];
        for file in [&dead, &ours].into_iter().chain(&unrelated) {
            fs::write(file, b"half").unwrap();
        }
        tidy(parent).unwrap();
        assert!(!dead.exists() && ours.exists() && unrelated.iter().all(|file| file.exists()));
        write(&path, b"again").unwrap();
        assert!(!ours.exists());
        assert_eq!(read(&path, 9).unwrap().as_slice(), b"again");
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file() {
        let (_directory, path) = place();
        fs::create_dir_all(&path).unwrap();
        set_mode(path.parent().unwrap(), 0o700);
        assert!(matches!(write(&path, b"x"), Err(PrivateFileError::Disk { .. })));
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
