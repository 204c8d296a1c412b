//! How the daemon of a state directory is reached, by whoever may read that directory.
//!
//! Guarantees: a daemon that runs is found where it serves, whatever became of its configuration since it started, unless a variable names
//! another address; what one left that did not stop in good order is not believed.
//!
//! The daemon tells where it serves in `serving.json`, once it does, and holds a lock on that file as long as it lives. A file that nobody
//! holds was left behind, or copied.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::PathBuf,
};

use palyra_identity::{Address, DeviceIdentity};
use palyra_types::StateHome;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    config::{Config, ListenSection},
    installation::{Files, InstallationError, agent_token, beside, is_private, own_directory, set_presence},
};

/// What it takes to talk to a daemon.
pub struct Contact {
    home: StateHome,
    device: DeviceIdentity,
    control: SocketAddr,
    local: SocketAddr,
}

impl Contact {
    /// Finds the daemon of a state directory, or where the next one will be.
    ///
    /// # Errors
    /// When there is no state directory, or it is not in order; when no daemon tells where it is, and the configuration cannot be used.
    pub fn find(
        home: &StateHome,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InstallationError> {
        own_directory(home)?;
        // Whoever names an address by a variable means it.
        let ListenSection { control, local, .. } = match Serving::now(home) {
            Some(serving) => Config::parse(&serving.as_configured(), variables)?.listen,
            None => Config::read(home, variables)?.listen,
        };
        let mut device = DeviceIdentity::read(&Files::of(home).device)?;
        if let Ok(address) = Address::parse(&reached(control).to_string()) {
            device.address = address;
        }
        Ok(Self { home: home.clone(), device, control, local })
    }

    /// The device that the owner's command line on this machine is, and where the daemon is for it.
    #[must_use]
    pub const fn identity(&self) -> &DeviceIdentity {
        &self.device
    }

    /// Where that device's identity is kept.
    #[must_use]
    pub fn identity_file(&self) -> PathBuf {
        Files::of(&self.home).device
    }

    /// The credential of agents on this machine.
    ///
    /// # Errors
    /// When there is none, or it cannot be read, or by others too.
    pub fn agent_token(&self) -> Result<Zeroizing<String>, InstallationError> {
        agent_token(&self.home)
    }

    /// Where the control listener is.
    #[must_use]
    pub const fn control(&self) -> SocketAddr {
        reached(self.control)
    }

    /// Where the local listener is.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sets the PIN that shows that a person is there. The next daemon asks for it, where the configuration says so.
    ///
    /// # Errors
    /// When the PIN is too short, or its hash cannot be kept.
    pub fn set_presence(&self, pin: &str) -> Result<(), InstallationError> {
        set_presence(&self.home, pin)
    }

    /// Where the journal is.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.home.journal()
    }
}

/// Where a daemon serves, as long as this is kept.
pub(crate) struct Told {
    home: StateHome,
    /// Locked.
    file: File,
}

impl Told {
    /// Tells that this process serves here.
    pub(crate) fn tell(home: &StateHome, control: SocketAddr, local: SocketAddr) -> io::Result<Self> {
        let beside = beside(&file(home));
        let _ = fs::remove_file(&beside);
        let told: io::Result<File> = (|| {
            let mut told = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            told.write_all(serde_json::to_string(&Serving { pid: std::process::id(), control, local })?.as_bytes())?;
            // Before anybody can see it.
            flock(&told, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&beside, file(home))?;
            Ok(told)
        })();
        let told = told.inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        });
        Ok(Self { home: home.clone(), file: told? })
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let own = self.file.metadata().map(|own| (own.dev(), own.ino())).ok();
        let found = fs::symlink_metadata(file(&self.home)).map(|found| (found.dev(), found.ino())).ok();
        if own.is_some() && own == found {
            let _ = fs::remove_file(file(&self.home));
        }
    }
}

/// The process that serves a state directory, if one does.
pub(crate) fn serving(home: &StateHome) -> Option<u32> {
    Serving::now(home).map(|serving| serving.pid)
}

/// A daemon that serves, by what it tells of itself. Does not show who listens at an address: the certificate there does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Its process, for whoever wants to stop it.
    pub pid: u32,
    /// Where devices reach it.
    pub control: SocketAddr,
    /// Where agents do.
    pub local: SocketAddr,
}

impl Serving {
    /// The daemon of a state directory, if one is there. What a daemon left behind that is gone does not count.
    #[must_use]
    pub fn now(home: &StateHome) -> Option<Self> {
        let path = file(home);
        is_private(&path).ok()?;
        let told = File::open(path).ok()?;
        match flock(&told, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            _ => return None,
        }
        let mut text = String::new();
        told.take(LONGEST).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// As a configuration would say it.
    fn as_configured(&self) -> String {
        format!("[listen]\ncontrol = \"{}\"\nlocal = \"{}\"\n", self.control, self.local)
    }
}

/// Where a listener is reached from its own machine. One on all addresses is on loopback, too.
const fn reached(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), v4.port()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), v6.port()),
        address => address,
    }
}

fn file(home: &StateHome) -> PathBuf {
    home.path().join("serving.json")
}

/// Longer than what is told.
const LONGEST: u64 = 1_024;

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, sync::Arc};

    use palyra_types::{clock::SystemClock, entropy::SystemEntropy};

    use super::*;
    use crate::installation::Installation;

    fn home(directory: &std::path::Path) -> StateHome {
        let home = StateHome::find(|name| (name == "PALYRA_HOME").then(|| directory.join("state").into())).unwrap();
        Installation::make(&home, None, [], (Arc::new(SystemClock::new()), Arc::new(SystemEntropy))).unwrap();
        home
    }

    fn local(home: &StateHome) -> Result<u16, InstallationError> {
        Contact::find(home, []).map(|contact| contact.local().port())
    }

    const THERE: (SocketAddr, SocketAddr) =
        (SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 21), SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 22));

    #[test]
    fn a_daemon_is_found_where_it_serves_and_then_where_the_next_one_will() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        let configured = Installation::find(&home, []).unwrap().local().port();
        assert_eq!(local(&home), Ok(configured));
        let told = Told::tell(&home, THERE.0, THERE.1).unwrap();
        assert_eq!(local(&home), Ok(22));
        fs::write(home.config(), "nonsense").unwrap();
        assert_eq!(local(&home), Ok(22));
        let named = [("PALYRA_LISTEN__LOCAL".to_owned(), "127.0.0.1:23".to_owned())];
        let contact = Contact::find(&home, named).unwrap();
        assert_eq!((contact.control().port(), contact.local().port()), (21, 23));
        drop(told);
        assert!(matches!(local(&home), Err(InstallationError::Config(_))));
    }

    #[test]
    fn what_a_daemon_left_that_is_gone_is_not_believed_nor_a_copy_nor_what_others_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        let configured = local(&home);
        let told = Told::tell(&home, THERE.0, THERE.1).unwrap();
        assert_eq!(local(&home), Ok(22));
        fs::set_permissions(file(&home), fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(local(&home), configured);
        fs::set_permissions(file(&home), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(local(&home), Ok(22));
        // A copy in its place is nobody's, and is not taken away with the daemon.
        let copy = home.path().join("copy");
        fs::copy(file(&home), &copy).unwrap();
        fs::rename(&copy, file(&home)).unwrap();
        assert_eq!(local(&home), configured);
        drop(told);
        assert!(file(&home).exists());
        let told = Told::tell(&home, THERE.0, THERE.1).unwrap();
        assert_eq!(local(&home), Ok(22));
        drop(told);
        assert!(!file(&home).exists());
    }
}
