//! What a device keeps of a daemon that it is paired with: its key, its certificate, and whom to trust.
//!
//! Guarantees: one file for one daemon, that only its owner can read; read whole and consistent (the key is the certificate's) or refused;
//! replaced whole.
//! Does not: ask whether the certificate still holds. The daemon does.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use palyra_types::{DeviceId, Timestamp};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    address::Address,
    certificate::Peer,
    csr,
    document::{self, DocumentError},
    pem,
    private_file::{self, PrivateFileError},
    validity::Validity,
};

/// What a device is to one daemon.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// What the device calls the daemon.
    pub name: String,
    /// Where the daemon listens.
    pub address: Address,
    /// The authorities to trust, as PEM.
    pub authorities: String,
    /// The device's certificate, as PEM.
    pub certificate: String,
    /// The device's key, as PEM.
    pub key: Zeroizing<String>,
    /// What the daemon calls the device.
    pub device: DeviceId,
    /// For whom the device acts.
    pub principal: String,
    /// The most that it may do, if it acts for a person.
    pub role: Option<String>,
}

impl DeviceIdentity {
    /// Reads an identity.
    ///
    /// # Errors
    /// When there is no such file of ours alone, or it is not an identity.
    pub fn read(path: &Path) -> Result<Self, KeepingError> {
        let content = private_file::read(path, LONGEST)?;
        let at = |why| KeepingError::Unusable { path: path.to_owned(), why };
        let document: Document = document::read(&content, VERSION).map_err(|error| at(error.into()))?;
        let identity = Self {
            name: document.name,
            address: document.address,
            authorities: document.authorities,
            certificate: document.certificate,
            key: Zeroizing::new(document.key),
            device: document.device,
            principal: document.principal,
            role: document.role,
        };
        identity.check().map_err(at)?;
        Ok(identity)
    }

    /// Writes the identity, in place of the one that may be there.
    ///
    /// # Errors
    /// When it is not consistent, or the disk does not take it. Then what was there still is.
    pub fn write(&self, path: &Path) -> Result<(), KeepingError> {
        let at = |why| KeepingError::Unusable { path: path.to_owned(), why };
        self.check().map_err(at)?;
        let document = WrittenDocument {
            v: VERSION,
            name: &self.name,
            address: &self.address,
            device: &self.device,
            principal: &self.principal,
            role: self.role.as_deref(),
            authorities: &self.authorities,
            certificate: &self.certificate,
            key: &self.key,
        };
        let content = document::write(&document).map_err(|error| at(error.into()))?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > LONGEST {
            return Err(at(Unusable::TooLong));
        }
        Ok(private_file::write(path, &content)?)
    }

    /// From when until when the certificate holds.
    ///
    /// # Errors
    /// When it is none.
    pub fn validity(&self) -> Result<Validity, Unusable> {
        self.peer().map(|peer| peer.validity)
    }

    /// Until when the certificate holds.
    ///
    /// # Errors
    /// When it is none.
    pub fn until(&self) -> Result<Timestamp, Unusable> {
        self.validity().map(|validity| validity.until)
    }

    /// Whether it is time to ask for a new certificate.
    ///
    /// # Errors
    /// When there is no certificate.
    pub fn renewal_is_due(&self, now: Timestamp) -> Result<bool, Unusable> {
        self.validity().map(|validity| validity.renewal_is_due(now))
    }

    /// What the daemon sees of the certificate.
    fn peer(&self) -> Result<Peer, Unusable> {
        let certificate = pem::certificate(&self.certificate).ok_or(Unusable::NoCertificate)?;
        Peer::of(&certificate).map_err(|_| Unusable::NoCertificate)
    }

    fn check(&self) -> Result<(), Unusable> {
        let peer = self.peer()?;
        pem::certificates(&self.authorities).ok_or(Unusable::NoAuthorities)?;
        let key = csr::request_for(&self.key).map_err(|_| Unusable::ForeignKey)?.key();
        if key == peer.key { Ok(()) } else { Err(Unusable::ForeignKey) }
    }
}

impl std::fmt::Debug for DeviceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: it holds a private key.
        write!(f, "DeviceIdentity({} at {}, {})", self.device, self.address, palyra_types::visible::visible(&self.name))
    }
}

/// One file of a directory of identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub identity: Result<DeviceIdentity, KeepingError>,
}

/// Every identity in a directory, in the order of their paths. What interrupted writes have left is removed.
///
/// # Errors
/// When the directory is not ours alone or cannot be read. A file that cannot be read does not hide the others.
pub fn read_all(directory: &Path) -> Result<Vec<KeptFile>, KeepingError> {
    private_file::check_directory(directory)?;
    private_file::tidy(directory)?;
    let unreadable =
        |error: std::io::Error| PrivateFileError::Disk { path: directory.to_owned(), why: error.to_string() };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension() == Some(OsStr::new("json")) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.into_iter().map(|path| KeptFile { identity: DeviceIdentity::read(&path), path }).collect())
}

/// Removes what interrupted writes have left in a directory.
///
/// # Errors
/// When it cannot be read, or something in it not removed.
pub fn tidy(directory: &Path) -> Result<(), KeepingError> {
    Ok(private_file::tidy(directory)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "v")]
    _v: u64,
    name: String,
    address: Address,
    device: DeviceId,
    principal: String,
    role: Option<String>,
    authorities: String,
    certificate: String,
    key: String,
}

#[derive(Serialize)]
struct WrittenDocument<'a> {
    v: u64,
    name: &'a str,
    address: &'a Address,
    device: &'a DeviceId,
    principal: &'a str,
    role: Option<&'a str>,
    authorities: &'a str,
    certificate: &'a str,
    key: &'a str,
}

/// Why an identity was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeepingError {
    /// The file.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// What is in it.
    #[error("`{}` cannot be used: {why}", palyra_types::visible::visible(&.path.to_string_lossy()))]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        why: Unusable,
    },
}

impl KeepingError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::File(error) => error.advice(),
            Self::Unusable { why, .. } => why.advice(),
        }
    }
}

/// Why what is kept is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Not a document of this version.
    #[error("it {0}")]
    Document(#[from] DocumentError),
    /// No certificate of the device.
    #[error("it has no certificate of a device")]
    NoCertificate,
    /// Nobody to trust.
    #[error("it has no authorities")]
    NoAuthorities,
    /// The key is not the certificate's.
    #[error("its key does not belong to its certificate")]
    ForeignKey,
    /// Too long.
    #[error("it is too long to be kept")]
    TooLong,
}

impl Unusable {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Document(DocumentError::OtherVersion { .. }) => {
                "use the version of the program that wrote it, or a newer one"
            }
            _ => "remove the file and pair this device again",
        }
    }
}

const VERSION: u64 = 1;

/// Longest file, in bytes.
const LONGEST: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::lab::{DAY, Lab, START};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemons").join("home.json");
        (directory, path)
    }

    fn unusable(path: &Path, why: Unusable) -> Option<KeepingError> {
        Some(KeepingError::Unusable { path: path.to_owned(), why })
    }

    #[test]
    fn an_identity_reads_back_as_it_was_written() {
        let (_directory, path) = place();
        let lab = Lab::new();
        for identity in [lab.device(), DeviceIdentity { role: None, ..lab.device() }] {
            identity.write(&path).unwrap();
            assert_eq!(DeviceIdentity::read(&path), Ok(identity));
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_identity_is_refused_with_a_reason() {
        let (_directory, path) = place();
        let (lab, other) = (Lab::new(), Lab::new());
        let identity = lab.device();
        identity.write(&path).unwrap();
        let written = fs::read_to_string(&path).unwrap();
        let read = |text: &str| {
            private_file::write(&path, text.as_bytes()).unwrap();
            DeviceIdentity::read(&path).err()
        };
        let version = DocumentError::OtherVersion { found: 2, known: 1 };
        assert_eq!(read(&written.replace("\"v\": 1", "\"v\": 2")), unusable(&path, version.into()));
        for text in ["", "{}", &written.replace("\"v\": 1", "\"v\": 1, \"more\": 1"), &written.replace(":7443", "")] {
            let error = read(text);
            let why = DocumentError::Unreadable { line: 0, column: 0 };
            let Some(KeepingError::Unusable { why: Unusable::Document(found), .. }) = error else {
                panic!("{error:?}")
            };
            assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(&why));
        }
        let too_long = format!("{written}{}", " ".repeat(65_536));
        let error = PrivateFileError::TooLong { path: path.clone(), most: 65_536 };
        assert_eq!(read(&too_long), Some(KeepingError::File(error)));
        for (identity, why) in [
            (DeviceIdentity { key: other.device().key, ..identity.clone() }, Unusable::ForeignKey),
            (DeviceIdentity { key: "none".to_owned().into(), ..identity.clone() }, Unusable::ForeignKey),
            (DeviceIdentity { certificate: String::new(), ..identity.clone() }, Unusable::NoCertificate),
            (DeviceIdentity { authorities: String::new(), ..identity.clone() }, Unusable::NoAuthorities),
            (DeviceIdentity { name: "x".repeat(70_000), ..identity.clone() }, Unusable::TooLong),
        ] {
            assert_eq!(identity.write(&path).err(), unusable(&path, why));
        }
        let mixed = written.replace(&identity.key.replace('\n', "\\n"), &other.device().key.replace('\n', "\\n"));
        assert_eq!(read(&mixed), unusable(&path, Unusable::ForeignKey));
    }

    #[test]
    fn an_identity_that_others_can_read_is_refused() {
        let (_directory, path) = place();
        Lab::new().device().write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = DeviceIdentity::read(&path).unwrap_err();
        assert_eq!(error, KeepingError::File(PrivateFileError::Open(path)));
        assert_eq!(error.advice(), "`chmod 600` it; if somebody may have read it, replace what it holds");
    }

    #[test]
    fn every_identity_of_a_directory_is_read_and_a_broken_one_hides_no_other() {
        let (_directory, home) = place();
        let directory = home.parent().unwrap();
        let [work, broken] = ["work.json", "broken.json"].map(|name| directory.join(name));
        let (lab, other) = (Lab::new(), Lab::new());
        let (first, second) = (lab.device(), other.device());
        first.write(&home).unwrap();
        second.write(&work).unwrap();
        private_file::write(&broken, b"{").unwrap();
        let leftover = directory.join(".home.json.new-2000000000");
        fs::write(&leftover, "half of an identity").unwrap();
        fs::write(directory.join("notes.txt"), "").unwrap();
        let document = DocumentError::Unreadable { line: 1, column: 1 };
        let error = KeepingError::Unusable { path: broken.clone(), why: document.into() };
        assert_eq!(
            read_all(directory).unwrap(),
            [
                KeptFile { path: broken, identity: Err(error) },
                KeptFile { path: home.clone(), identity: Ok(first.clone()) },
                KeptFile { path: work, identity: Ok(second) },
            ]
        );
        assert!(!leftover.exists());
        fs::write(&leftover, "half of an identity").unwrap();
        tidy(directory).unwrap();
        assert!(!leftover.exists());
        assert_eq!(DeviceIdentity::read(&home), Ok(first));
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        let open = PrivateFileError::OpenDirectory(directory.to_owned());
        assert_eq!(read_all(directory), Err(KeepingError::File(open)));
    }

    #[test]
    fn renewal_is_due_in_the_last_third_of_the_certificate() {
        let identity = Lab::new().device();
        let after = |days: i64| Timestamp::from_unix_millis(START.unix_millis() + days * DAY);
        assert_eq!(identity.renewal_is_due(after(39)), Ok(false));
        assert_eq!(identity.renewal_is_due(after(40)), Ok(true));
        let hour = DAY / 24;
        assert_eq!(identity.until(), Ok(Timestamp::from_unix_millis(after(60).unix_millis() - hour)));
        let none = DeviceIdentity { certificate: String::new(), ..identity };
        assert_eq!(none.renewal_is_due(after(0)), Err(Unusable::NoCertificate));
    }

    #[test]
    fn no_key_is_in_debug_output() {
        let shown = format!("{:?}", Lab::new().device());
        assert_eq!(shown, "DeviceIdentity(laptop-1 at 192.0.2.7:7443, home)");
    }
}
