//! How the daemon of a state directory is reached, by whoever may read that directory.
//!
//! Guarantees: a daemon that runs is found where it serves, whatever became of its configuration since it started, unless a variable names
//! another address; what one left that did not stop in good order is not believed while no such process runs.
//!
//! The daemon tells where it serves in `serving.json`, once it does. It is a hint and no secret: credentials go to whoever has the
//! certificate, or over loopback as the configuration would have it.

use std::{fs, io, net::SocketAddr, path::PathBuf};

use palyra_types::StateHome;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, ListenSection},
    installation::{InstallationError, Keys, own_directory, read_private, set_presence, write_new},
};

/// What it takes to talk to a daemon.
pub struct Contact {
    home: StateHome,
    keys: Keys,
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
        Ok(Self { home: home.clone(), keys: Keys::read(home)?, control, local })
    }

    /// The credentials and the certificate.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Where the control listener is.
    #[must_use]
    pub const fn control(&self) -> SocketAddr {
        self.control
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
pub(crate) struct Told(StateHome);

impl Told {
    /// Tells that this process serves here.
    pub(crate) fn tell(home: &StateHome, control: SocketAddr, local: SocketAddr) -> io::Result<Self> {
        let serving = Serving { pid: std::process::id(), control, local };
        let (path, beside) = (file(home), file(home).with_extension("told"));
        let _ = fs::remove_file(&beside);
        write_new(&beside, serde_json::to_string(&serving)?.as_bytes())?;
        fs::rename(&beside, &path)?;
        Ok(Self(home.clone()))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if Serving::read(&self.0).is_some_and(|serving| serving.pid == std::process::id()) {
            let _ = fs::remove_file(file(&self.0));
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Serving {
    pid: u32,
    control: SocketAddr,
    local: SocketAddr,
}

impl Serving {
    /// What a daemon told that is still there.
    fn now(home: &StateHome) -> Option<Self> {
        Self::read(home).filter(Self::is_there)
    }

    fn read(home: &StateHome) -> Option<Self> {
        serde_json::from_str(&read_private(&file(home)).ok()?).ok()
    }

    /// As a configuration would say it.
    fn as_configured(&self) -> String {
        format!("[listen]\ncontrol = \"{}\"\nlocal = \"{}\"\n", self.control, self.local)
    }

    fn is_there(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)))
    }
}

fn file(home: &StateHome) -> PathBuf {
    home.path().join("serving.json")
}

#[cfg(test)]
mod tests {
    use palyra_types::{clock::SystemClock, entropy::SystemEntropy};

    use super::*;
    use crate::installation::Installation;

    fn home(directory: &std::path::Path) -> StateHome {
        let home = StateHome::find(|name| (name == "PALYRA_HOME").then(|| directory.join("state").into())).unwrap();
        Installation::make(&home, None, [], (&SystemClock::new(), &SystemEntropy)).unwrap();
        home
    }

    fn local(home: &StateHome) -> Result<u16, InstallationError> {
        Contact::find(home, []).map(|contact| contact.local().port())
    }

    const THERE: (SocketAddr, SocketAddr) = (
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 21),
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 22),
    );

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
    fn what_a_daemon_left_that_is_gone_is_not_believed_nor_what_another_user_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        let configured = local(&home);
        let told = Told::tell(&home, THERE.0, THERE.1).unwrap();
        std::mem::forget(told);
        let text = fs::read_to_string(file(&home)).unwrap();
        let own = format!("\"pid\":{}", std::process::id());
        assert!(text.contains(&own), "{text}");
        // No system gives so high a number.
        fs::write(file(&home), text.replace(&own, &format!("\"pid\":{}", i32::MAX))).unwrap();
        assert_eq!(local(&home), configured);
        fs::write(file(&home), &text).unwrap();
        assert_eq!(local(&home), Ok(22));
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(file(&home), fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(local(&home), configured);
    }
}
