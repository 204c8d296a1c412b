//! The archive of a package: a tar file (ustar) that is spelt in one way.
//!
//! Guarantees: the same files make the same bytes, and only those bytes are read back, so that one content has one digest. What is unpacked is
//! regular files with plain relative names, no two of which could be taken for each other, within bounds that hold before anything is copied.
//! Refuses: links, devices, directories, extensions of tar, compression, and anything behind the end.
//! Does not: touch a file system.

mod header;

use std::collections::{BTreeMap, BTreeSet};

use palyra_types::visible::visible;

use self::header::{BLOCK, Header};

/// Makes an archive of files.
///
/// # Errors
/// When a name is not plain, two are too much alike, or there are too many or too much.
pub fn pack(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, ArchiveError> {
    let mut intake = Intake::default();
    for (name, content) in files {
        intake.admit(name, content.len())?;
    }
    intake.finish()?;
    let mut archive = Vec::with_capacity(intake.bytes + (files.len() + 1) * 2 * BLOCK);
    for (name, content) in files {
        archive.extend_from_slice(&header::write(name, content.len()));
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize(archive.len() + END, 0);
    Ok(archive)
}

/// Reads an archive.
///
/// # Errors
/// When it is not exactly what [`pack`] makes; see [`ArchiveError`].
pub fn unpack(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    if let Some(kind) = compression_of(archive) {
        return Err(ArchiveError::Compressed(kind));
    }
    if archive.len() > MOST_ARCHIVE_BYTES {
        return Err(ArchiveError::TooLarge);
    }
    let mut intake = Intake::default();
    let mut files = BTreeMap::new();
    let mut rest = archive;
    loop {
        let (block, behind) = rest.split_first_chunk::<BLOCK>().ok_or(ArchiveError::Truncated)?;
        if block == &[0; BLOCK] {
            end(behind)?;
            break;
        }
        let Header { name, size } = header::read(block)?;
        intake.admit(&name, size)?;
        let content = behind.get(..size).ok_or(ArchiveError::Truncated)?;
        rest = behind.get(size.next_multiple_of(BLOCK)..).ok_or(ArchiveError::Truncated)?;
        files.insert(name, content.to_vec());
    }
    intake.finish()?;
    // Order, modes, times, owners, padding and spelling of numbers, all at once.
    if pack(&files)? != archive {
        return Err(ArchiveError::NotCanonical);
    }
    Ok(files)
}

/// Whether something is a name of a file in an archive: `schemas/input.json`.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// What came before, against which the next file is held.
#[derive(Default)]
struct Intake {
    names: BTreeSet<String>,
    folded: BTreeSet<String>,
    bytes: usize,
}

impl Intake {
    fn admit(&mut self, name: &str, size: usize) -> Result<(), ArchiveError> {
        check_name(name)?;
        if self.names.len() >= MOST_FILES {
            return Err(ArchiveError::TooManyFiles);
        }
        if !self.names.insert(name.to_owned()) {
            return Err(ArchiveError::Duplicate(name.to_owned()));
        }
        // Some file systems do not tell them apart, and people hardly do.
        if !self.folded.insert(name.to_ascii_lowercase()) {
            return Err(ArchiveError::DuplicateByCase(name.to_owned()));
        }
        self.bytes = self.bytes.checked_add(size).filter(|&bytes| bytes <= MOST_BYTES).ok_or(ArchiveError::TooLarge)?;
        Ok(())
    }

    /// A name that is a file cannot be a directory as well.
    fn finish(&self) -> Result<(), ArchiveError> {
        let parents = |name: &str| -> Vec<String> {
            name.match_indices('/').filter_map(|(at, _)| name.get(..at)).map(str::to_owned).collect()
        };
        let both = self.folded.iter().find(|name| parents(name).iter().any(|parent| self.folded.contains(parent)));
        both.map_or(Ok(()), |name| Err(ArchiveError::FileAndDirectory(name.clone())))
    }
}

fn check_name(name: &str) -> Result<(), ArchiveError> {
    let refused = |fault| Err(ArchiveError::Name { name: name.to_owned(), fault });
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
    if name.is_empty() {
        return refused(NameFault::Empty);
    }
    if name.len() > MOST_NAME_BYTES {
        return refused(NameFault::TooLong);
    }
    if name.starts_with('/') {
        return refused(NameFault::Absolute);
    }
    if !name.bytes().all(is_plain) {
        return refused(NameFault::Character);
    }
    if name.split('/').any(|part| matches!(part, "." | "..")) {
        return refused(NameFault::Traversal);
    }
    if name.split('/').any(str::is_empty) {
        return refused(NameFault::EmptyPart);
    }
    if name.split('/').count() > MOST_DEPTH {
        return refused(NameFault::TooDeep);
    }
    Ok(())
}

/// What stands behind the first block of zeros: one more, and nothing else.
fn end(behind: &[u8]) -> Result<(), ArchiveError> {
    match behind.split_first_chunk::<BLOCK>() {
        Some((second, [])) if second == &[0; BLOCK] => Ok(()),
        None => Err(ArchiveError::Truncated),
        Some(_) => Err(ArchiveError::BehindTheEnd),
    }
}

fn compression_of(archive: &[u8]) -> Option<&'static str> {
    MAGIC.iter().find(|(magic, _)| archive.starts_with(magic)).map(|&(_, kind)| kind)
}

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Compressed, which packages are not.
    #[error("it is compressed with {0}")]
    Compressed(&'static str),
    /// No tar file.
    #[error("it is no ustar archive")]
    NotAnArchive,
    /// It ends too early.
    #[error("it ends too early")]
    Truncated,
    /// A header was changed.
    #[error("the checksum of a header is wrong")]
    Checksum,
    /// A number in a header is none.
    #[error("a number in a header is none, or too large")]
    Number,
    /// Something else than a file.
    #[error("`{}` is {what}", visible(.name))]
    NotAFile {
        /// Its name.
        name: String,
        /// What it is.
        what: &'static str,
    },
    /// Its name is none.
    #[error("the name `{}` {fault}", visible(.name))]
    Name {
        /// As given.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The same name again.
    #[error("`{0}` is in it twice")]
    Duplicate(String),
    /// The same name in other letters.
    #[error("`{0}` is in it twice, in capital and small letters")]
    DuplicateByCase(String),
    /// A file below a file.
    #[error("`{0}` lies below a file")]
    FileAndDirectory(String),
    /// Too many files.
    #[error("it holds more than {MOST_FILES} files")]
    TooManyFiles,
    /// Too many bytes.
    #[error("it holds more than {} MiB", MOST_BYTES >> 20)]
    TooLarge,
    /// Something behind the end.
    #[error("there is something behind its end")]
    BehindTheEnd,
    /// The same content spelt in another way.
    #[error("it is not spelt as packages are")]
    NotCanonical,
}

impl ArchiveError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Compressed(_) => "packages are not compressed; make it with `palyra skills pack`",
            Self::Truncated | Self::Checksum => "fetch the package again; it was cut off or changed on the way",
            Self::TooManyFiles | Self::TooLarge => "leave out what the skill does not need",
            Self::Name { .. } | Self::Duplicate(_) | Self::DuplicateByCase(_) | Self::FileAndDirectory(_) => {
                "name files with letters, digits and . _ -, each once, at most 8 directories deep"
            }
            Self::NotAnArchive | Self::Number | Self::NotAFile { .. } | Self::BehindTheEnd | Self::NotCanonical => {
                "make it with `palyra skills pack`, which spells it in the one way"
            }
        }
    }
}

/// What is wrong with the name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing.
    #[error("is empty")]
    Empty,
    /// Too long.
    #[error("is longer than {MOST_NAME_BYTES} bytes")]
    TooLong,
    /// From the root.
    #[error("begins at the root")]
    Absolute,
    /// `.` or `..`.
    #[error("leads elsewhere")]
    Traversal,
    /// Two slashes, or one at the end.
    #[error("has an empty part")]
    EmptyPart,
    /// Anything but letters, digits and `. _ -`.
    #[error("has a character that is no letter, digit, `.`, `_` or `-`")]
    Character,
    /// Too many directories.
    #[error("is more than {MOST_DEPTH} parts deep")]
    TooDeep,
}

/// The most files.
pub const MOST_FILES: usize = 256;
/// The most bytes of all files together: 64 MiB.
pub const MOST_BYTES: usize = 64 << 20;
/// The longest name, which is what fits into a header.
const MOST_NAME_BYTES: usize = 100;
/// The most parts of a name.
const MOST_DEPTH: usize = 8;
/// Two blocks of zeros.
const END: usize = 2 * BLOCK;
/// The largest archive: all files, a header and padding for each, and the end.
pub const MOST_ARCHIVE_BYTES: usize = MOST_BYTES + MOST_FILES * 2 * BLOCK + END;

const MAGIC: &[(&[u8], &str)] = &[
    (&[0x1f, 0x8b], "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (b"BZh", "bzip2"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip"),
];

#[cfg(test)]
mod tests;
