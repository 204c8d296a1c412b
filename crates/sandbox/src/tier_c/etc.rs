//! The `/etc` of enclosures: some files that are made here, and copies of what programs need to know about the machine.
//!
//! Guarantees: only what everybody on this machine may read is copied, so no key and no password gets into it; links are copied as links.
//! It is removed when nobody uses it any more.
//! Does not: follow what changes afterwards. It is made anew when the daemon starts and when it reads its configuration.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use super::bubblewrap::{HOME, USER};

/// A generated `/etc`. Dropping it removes it.
#[derive(Debug)]
pub struct Etc {
    path: PathBuf,
}

impl Etc {
    /// Makes one in this directory, which is the daemon's own. What an earlier daemon left there is removed. Programs trust the authorities of
    /// these certificates, besides those that the machine trusts.
    ///
    /// # Errors
    /// When something cannot be written. What cannot be read is left out.
    pub fn generate(within: &Path, trust: &[PathBuf]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(within)?;
        let own = format!("etc-{}-", std::process::id());
        for entry in fs::read_dir(within)?.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with("etc-") && !name.starts_with(&own)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let etc = Self { path: within.join(format!("{own}{}", NEXT.fetch_add(1, Ordering::Relaxed))) };
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
        let _ = fs::remove_dir_all(&self.path);
    }
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
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n".to_owned()),
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

/// Where the certificates are that programs trust, as Debian has them.
pub const TRUSTED: &str = "ssl/certs/ca-certificates.crt";

/// Where different systems have them.
const BUNDLES: &[&str] = &[TRUSTED, "pki/tls/certs/ca-bundle.crt", "pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "ssl/cert.pem"];

const MOST_LEVELS: u32 = 6;
const LARGEST: u64 = 4 << 20;
