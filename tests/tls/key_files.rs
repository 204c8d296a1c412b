//! What a device shows, as the files that other programs read it from.

use std::{fs, path::PathBuf};

use palyra_identity::DeviceIdentity;
use tempfile::TempDir;

/// A certificate, its key and the authorities to trust, each in a file.
pub struct KeyFiles {
    directory: TempDir,
}

impl KeyFiles {
    /// The files of this device.
    pub fn of(device: &DeviceIdentity) -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(files.certificate(), &device.certificate).unwrap();
        fs::write(files.key(), device.key.as_bytes()).unwrap();
        fs::write(files.authorities(), &device.authorities).unwrap();
        files
    }

    /// Its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.path("certificate.pem")
    }

    /// Its key.
    pub fn key(&self) -> PathBuf {
        self.path("key.pem")
    }

    /// The authorities that it trusts.
    pub fn authorities(&self) -> PathBuf {
        self.path("authorities.pem")
    }

    /// Another file beside them.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
