//! The `/etc` of enclosures: some files that are made here, and copies of what programs need to know about the machine.
//!
//! Guarantees: only what everybody on this machine may read is copied, so no key and no password gets into it; links are copied as links.
//! Nobody but the daemon can write to it, and it is removed when nobody uses it any more.
//! Does not: follow what changes afterwards. It is made anew when the daemon starts and when it reads its configuration.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use super::bubblewrap::{HOME, USER};
use crate::egress::SUBJECT_HASH;

/// A generated `/etc`. Dropping it removes it.
#[derive(Debug)]
pub struct Etc {
    /// Nobody but the daemon's own user can enter this one, in which it lies.
    around: PathBuf,
    path: PathBuf,
    /// Where programs look for authorities, as they see it.
    bundles: Vec<PathBuf>,
}

impl Etc {
    /// Makes one: in memory, or in this directory where there is no memory for files. Programs trust the authorities of these certificates,
    /// besides those that the machine trusts. What an earlier daemon left is removed.
    ///
    /// # Errors
    /// When something cannot be written, or a certificate cannot be read. What else cannot be read is left out.
    pub fn generate(within: &Path, trust: &[PathBuf]) -> io::Result<Self> {
        remove_forgotten(Path::new(MEMORY));
        let around = match make(Path::new(MEMORY)) {
            Ok(made) => made,
            Err(_) => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(within)?;
                remove_forgotten(within);
                make(within)?
            }
        };
        let mut etc = Self { path: around.join("etc"), around, bundles: Vec::new() };
        fill(&etc.path)?;
        let mut bundles = bundles(&etc.path)?;
        for certificates in trust {
            add(&bundles, &fs::read(certificates)?)?;
        }
        bundles.insert(leave_room_for_one(&etc.path)?);
        let root = fs::canonicalize(&etc.path)?;
        etc.bundles =
            bundles.iter().filter_map(|path| Some(Path::new("/etc").join(path.strip_prefix(&root).ok()?))).collect();
        Ok(etc)
    }

    /// The files to which an authority is added that only one enclosure trusts, as its programs see them.
    pub fn bundles(&self) -> &[PathBuf] {
        &self.bundles
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Etc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.around);
    }
}

/// Makes a directory that is this process's own.
fn make(within: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = within.join(format!("{}{}-{count}", prefix(), std::process::id()));
    // Fails if there is one already, whoever made it.
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// Removes what daemons of this user left that are no more.
fn remove_forgotten(within: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix(&prefix())?.split('-').next()?.parse::<u32>().ok());
        let is_gone = process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists());
        if is_gone && entry.metadata().is_ok_and(|status| status.uid() == own) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn prefix() -> String {
    format!("palyra-etc-{}-", rustix::process::geteuid().as_raw())
}

fn fill(into: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(into)?;
    let made = [
        (
            "passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:{USER}:{USER}:agent:{HOME}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
            ),
        ),
        ("group", format!("root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n")),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n".to_owned()),
        ("hostname", "sandbox\n".to_owned()),
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n".to_owned()),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n".to_owned(),
        ),
    ];
    for (name, text) in made {
        write(&into.join(name), text.as_bytes())?;
    }
    for name in COPIED {
        copy(&Path::new("/etc").join(name), &into.join(name), 0)?;
    }
    // Debian keeps the configuration of its Java there, in a directory with the version in its name.
    for entry in fs::read_dir("/etc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("java-")) {
            copy(&entry.path(), &into.join(name), 0)?;
        }
    }
    Ok(())
}

/// The bundles that there are in this `/etc`, by their real paths; one is made where there is none.
///
/// SECURITY: links are copied as they are, and one may lead to the machine's own bundle, which is not for us to write to.
fn bundles(etc: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let root = fs::canonicalize(etc)?;
    let real = BUNDLES.iter().filter_map(|name| fs::canonicalize(etc.join(name)).ok());
    let there: BTreeSet<PathBuf> = real.filter(|path| path.starts_with(&root) && path.is_file()).collect();
    if !there.is_empty() {
        return Ok(there);
    }
    let made = certificates_of(etc)?.join(Path::new(TRUSTED).file_name().unwrap_or_default());
    let _ = fs::remove_file(&made);
    write(&made, b"")?;
    Ok(BTreeSet::from([made]))
}

/// The directory of certificates in this `/etc`, by its real path. A link that leads out of it leads nowhere in an enclosure, and makes room.
fn certificates_of(etc: &Path) -> io::Result<PathBuf> {
    let root = fs::canonicalize(etc)?;
    let mut here = root.clone();
    for name in Path::new(TRUSTED).parent().into_iter().flat_map(Path::components) {
        let next = here.join(name);
        here = match fs::canonicalize(&next) {
            Ok(real) if real.starts_with(&root) && real.is_dir() => real,
            _ => {
                let _ = fs::remove_file(&next);
                fs::DirBuilder::new().mode(0o755).create(&next)?;
                next
            }
        };
    }
    Ok(here)
}

/// Adds certificates to these bundles.
fn add(bundles: &BTreeSet<PathBuf>, certificates: &[u8]) -> io::Result<()> {
    for bundle in bundles {
        let mut file = fs::OpenOptions::new().append(true).open(bundle)?;
        file.write_all(b"\n")?;
        file.write_all(certificates)?;
        fs::set_permissions(bundle, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Leaves an empty file for an authority that only one enclosure trusts, where programs find it that look by the hash of its name.
fn leave_room_for_one(etc: &Path) -> io::Result<PathBuf> {
    let directory = certificates_of(etc)?;
    let file = directory.join(ONE_MORE);
    write(&file, b"")?;
    match symlink(ONE_MORE, directory.join(format!("{SUBJECT_HASH}.0"))) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(file),
    }
}

/// Copies what everybody may read.
fn copy(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    let Ok(status) = fs::symlink_metadata(from) else { return Ok(()) };
    let mode = status.permissions().mode();
    if status.is_symlink() {
        return match fs::read_link(from) {
            Ok(target) => symlink(target, to),
            Err(_) => Ok(()),
        };
    }
    if status.is_dir() && mode & 0o005 == 0o005 && depth < MOST_LEVELS {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(to)?;
        for entry in fs::read_dir(from).into_iter().flatten().flatten() {
            copy(&entry.path(), &to.join(entry.file_name()), depth + 1)?;
        }
    } else if status.is_file() && mode & 0o004 != 0 && status.len() <= LARGEST {
        return match fs::read(from) {
            Ok(content) => write(to, &content),
            Err(_) => Ok(()),
        };
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

/// What is copied: how libraries are found, the time zone, certificates that are trusted, what commands are links to, names of services, fonts.
const COPIED: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "debian_version",
    "perl",
    "pki",
    "protocols",
    "services",
    "shells",
    "ssl",
    "timezone",
];

/// Where files are kept in memory: making hundreds of links on a busy disk takes seconds.
const MEMORY: &str = "/dev/shm";

/// Where the certificates are that programs trust, as Debian has them.
pub const TRUSTED: &str = "ssl/certs/ca-certificates.crt";

/// Where different systems have them.
const BUNDLES: &[&str] =
    &[TRUSTED, "pki/tls/certs/ca-bundle.crt", "pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "ssl/cert.pem"];

/// The file of an authority that only one enclosure trusts.
const ONE_MORE: &str = "palyra-run-authority.pem";

const MOST_LEVELS: u32 = 6;
const LARGEST: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// An `/etc` as some system has it, and a directory of the machine.
    fn etc() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (etc, machine) = (directory.path().join("etc"), directory.path().join("machine"));
        fs::create_dir_all(etc.join("ssl")).unwrap();
        fs::create_dir(&machine).unwrap();
        (directory, etc, machine)
    }

    #[test]
    fn nothing_is_written_where_a_link_leads_out() {
        let (_directory, etc, machine) = etc();
        fs::write(machine.join("ca-certificates.crt"), "the machine's").unwrap();
        symlink(&machine, etc.join("ssl/certs")).unwrap();
        symlink(machine.join("ca-certificates.crt"), etc.join("ssl/cert.pem")).unwrap();
        let bundles = bundles(&etc).unwrap();
        assert_eq!(bundles, BTreeSet::from([fs::canonicalize(&etc).unwrap().join(TRUSTED)]));
        add(&bundles, b"another").unwrap();
        leave_room_for_one(&etc).unwrap();
        assert_eq!(fs::read_to_string(machine.join("ca-certificates.crt")).unwrap(), "the machine's");
        assert_eq!(fs::read_dir(&machine).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(etc.join(TRUSTED)).unwrap(), "\nanother");
    }

    #[test]
    fn a_bundle_with_two_names_gets_certificates_once() {
        let (_directory, etc, _) = etc();
        fs::create_dir_all(etc.join("extracted")).unwrap();
        fs::create_dir_all(etc.join("ssl/certs")).unwrap();
        fs::write(etc.join("extracted/bundle.pem"), "old").unwrap();
        symlink("../extracted/bundle.pem", etc.join("ssl/cert.pem")).unwrap();
        symlink("../../extracted/bundle.pem", etc.join(TRUSTED)).unwrap();
        add(&bundles(&etc).unwrap(), b"new").unwrap();
        assert_eq!(fs::read_to_string(etc.join(TRUSTED)).unwrap(), "old\nnew");
    }

    #[test]
    fn what_is_left_for_one_is_found_by_its_hash() {
        let (_directory, etc, _) = etc();
        let file = leave_room_for_one(&etc).unwrap();
        assert_eq!(fs::canonicalize(etc.join(format!("ssl/certs/{SUBJECT_HASH}.0"))).unwrap(), file);
        assert_eq!(fs::read(file).unwrap(), b"");
    }
}
