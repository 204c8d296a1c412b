//! The `/etc` of enclosures: some files that are made here, and copies of what programs need to know about the machine.
//!
//! Guarantees: only what everybody on this machine may read is copied, so no key and no password gets into it; links are copied as links.
//! Nobody but the daemon can write to it, and it is removed when nobody uses it any more.
//! Does not: follow what changes afterwards. It is made anew when the daemon starts and when it reads its configuration.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use super::bubblewrap::{HOME, USER};

/// A generated `/etc`. Dropping it removes it.
#[derive(Debug)]
pub struct Etc {
    /// Nobody but the daemon's own user can enter this one, in which it lies.
    around: PathBuf,
    path: PathBuf,
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
        let etc = Self { path: around.join("etc"), around };
        fill(&etc.path)?;
        for certificates in trust {
            add(&etc.path, &fs::read(certificates)?)?;
        }
        Ok(etc)
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

/// Adds certificates to every bundle there is, and makes one where there is none.
fn add(etc: &Path, certificates: &[u8]) -> io::Result<()> {
    let there: Vec<PathBuf> = BUNDLES.iter().map(|name| etc.join(name)).filter(|path| path.is_file()).collect();
    let bundles = if there.is_empty() { vec![etc.join(TRUSTED)] } else { there };
    for bundle in bundles {
        fs::create_dir_all(bundle.parent().unwrap_or(etc))?;
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&bundle)?;
        file.write_all(b"\n")?;
        file.write_all(certificates)?;
        fs::set_permissions(&bundle, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
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

const MOST_LEVELS: u32 = 6;
const LARGEST: u64 = 4 << 20;
