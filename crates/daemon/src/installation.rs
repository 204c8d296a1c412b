//! The state directory: made by `init`, checked at every start, found by whoever talks to the daemon.
//!
//! ```text
//!  config.toml            what is configured
//!  policies/*.cedar       the operator's own rules
//!  journal/               the journal, its key and its lock
//!  access_registry.json   who is let in: members, devices, tokens (and a lock beside it)
//!  identity/authority.json   the authority that certifies devices and the daemon, with its keys
//!  identity/authorities.pem  what others trust: its certificates alone
//!  identity/device.json   the device that the owner's command line on this machine is
//!  identity/agent.token   the credential of agents on this machine
//!  identity/presence      the hash of the PIN that shows that a person is there, if one was set
//!  serving.json           where the daemon that runs serves (`contact.rs`)
//! ```
//!
//! Guarantees: everything is readable by its owner alone, or the daemon does not start; a file is there whole or not at all; what is there
//! is never overwritten.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use palyra_access::{CredentialKind, TokenText};
use palyra_gate::PresencePin;
use palyra_identity::{Authority, AuthorityError, DeviceIdentity, KeepingError};
use palyra_types::{AbsolutePath, Clock, Entropy, StateHome, WorkspaceName, entropy::NoEntropy};
use zeroize::Zeroizing;

use crate::{
    config::{Config, ConfigError},
    founding::{self, FoundingError},
};

/// A state directory that is in order.
pub struct Installation {
    home: StateHome,
    config: Config,
    authority: Authority,
    device: DeviceIdentity,
}

impl Installation {
    /// Finds what an earlier start left, and checks it.
    ///
    /// # Errors
    /// When there is none, or it is not in order.
    pub fn find(
        home: &StateHome,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InstallationError> {
        own_directory(home)?;
        let config = Config::read(home, variables)?;
        let files = Files::of(home);
        let authority = Authority::parse(&read_private(&files.authority)?)?;
        private(&files.registry, Kind::File)?;
        let device = DeviceIdentity::read(&files.device)?;
        match agent_token(home) {
            // Nobody here may have a token, which is no reason to let nobody else in.
            Ok(_) | Err(InstallationError::NoAgentToken) => {}
            Err(error) => return Err(error),
        }
        Ok(Self { home: home.clone(), config, authority, device })
    }

    /// Makes whatever is missing, and returns what there is. `workspace` is put into a new configuration.
    ///
    /// # Errors
    /// When something cannot be made, or what is there is not in order.
    pub fn make(
        home: &StateHome,
        workspace: Option<&(WorkspaceName, AbsolutePath)>,
        variables: impl IntoIterator<Item = (String, String)>,
        world: (Arc<dyn Clock>, Arc<dyn Entropy>),
    ) -> Result<Self, InstallationError> {
        for directory in [home.path(), &home.policies(), &home.path().join(IDENTITY)] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory))?;
            private(directory, Kind::Directory)?;
        }
        create(&home.config(), || Ok(configuration(workspace)))?;
        let config = Config::read(home, [])?;
        founding::found(&Files::of(home), &config.listen, world)?;
        Self::find(home, variables)
    }

    /// What is configured.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Where the state directory is.
    #[must_use]
    pub const fn home(&self) -> &StateHome {
        &self.home
    }

    /// The state directory as calls see it.
    ///
    /// # Errors
    /// When its path cannot be told.
    pub fn directory(&self) -> Result<AbsolutePath, InstallationError> {
        let path = fs::canonicalize(self.home.path()).map_err(at(self.home.path()))?;
        let text = path.to_str().ok_or_else(|| InstallationError::Unnameable(path.clone()))?;
        AbsolutePath::parse(text).map_err(|_| InstallationError::Unnameable(path.clone()))
    }

    /// Where the control listener is.
    #[must_use]
    pub const fn control(&self) -> SocketAddr {
        self.config.listen.control
    }

    /// Where the local listener is.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.config.listen.local
    }

    /// The authority that certifies devices and the daemon.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The device that the owner's command line on this machine is.
    #[must_use]
    pub const fn identity(&self) -> &DeviceIdentity {
        &self.device
    }

    /// Where everything about who is let in is kept.
    #[must_use]
    pub fn files(&self) -> Files {
        Files::of(&self.home)
    }

    /// Where the agents' credential is kept, for whoever configures an agent.
    #[must_use]
    pub fn agent_token_file(&self) -> PathBuf {
        self.files().agent_token
    }

    /// The hash of the PIN that shows that a person is there, if one was set.
    ///
    /// # Errors
    /// When it is there and cannot be read, or by others too.
    pub fn presence(&self) -> Result<Option<Zeroizing<String>>, InstallationError> {
        let path = self.home.path().join(IDENTITY).join(PRESENCE);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => read_private(&path).map(Some),
        }
    }

    /// Where the journal is.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.home.journal()
    }
}

/// Where everything about who is let in is kept.
#[derive(Debug, Clone)]
pub struct Files {
    /// Members, devices and tokens.
    pub registry: PathBuf,
    /// The authority, with its keys.
    pub authority: PathBuf,
    /// Its certificates alone.
    pub bundle: PathBuf,
    /// The device that the owner's command line on this machine is.
    pub device: PathBuf,
    /// The credential of agents on this machine.
    pub agent_token: PathBuf,
    /// The one that is to take its place.
    pub next_agent_token: PathBuf,
}

impl Files {
    /// Those of a state directory.
    #[must_use]
    pub fn of(home: &StateHome) -> Self {
        let identity = home.path().join(IDENTITY);
        Self {
            registry: home.path().join("access_registry.json"),
            authority: identity.join("authority.json"),
            bundle: identity.join("authorities.pem"),
            device: identity.join("device.json"),
            agent_token: identity.join("agent.token"),
            next_agent_token: identity.join("agent.token.next"),
        }
    }
}

/// The credential of agents on this machine.
pub(crate) fn agent_token(home: &StateHome) -> Result<Zeroizing<String>, InstallationError> {
    let path = Files::of(home).agent_token;
    let token = read_private(&path).map_err(|error| match error {
        InstallationError::Missing(_) => InstallationError::NoAgentToken,
        error => error,
    })?;
    match TokenText::check(&token) {
        Ok(CredentialKind::Agent) => Ok(token),
        _ => Err(InstallationError::NoCredential(path)),
    }
}

/// Whether there is a state directory, for its owner alone.
pub(crate) fn own_directory(home: &StateHome) -> Result<(), InstallationError> {
    if fs::symlink_metadata(home.path()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(InstallationError::Absent(home.path().to_owned()));
    }
    private(home.path(), Kind::Directory)
}

/// Sets the PIN that shows that a person is there.
pub(crate) fn set_presence(home: &StateHome, pin: &str) -> Result<(), InstallationError> {
    let hash = Zeroizing::new(PresencePin::hash(pin).map_err(|error| InstallationError::Pin(error.to_string()))?);
    let path = home.path().join(IDENTITY).join(PRESENCE);
    let beside = path.with_extension("set");
    let _ = fs::remove_file(&beside);
    write_new(&beside, hash.as_bytes()).and_then(|()| fs::rename(&beside, &path)).map_err(at(&path))
}

impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: it holds credentials.
        write!(f, "Installation({})", self.home.path().display())
    }
}

/// A new configuration, with this workspace.
fn configuration(workspace: Option<&(WorkspaceName, AbsolutePath)>) -> Zeroizing<String> {
    let mut text = include_str!("config.toml").to_owned();
    if let Some((name, path)) = workspace {
        // A path may hold what TOML would read otherwise.
        let quoted = toml::Value::from(path.as_str());
        text.push_str(&format!("[[workspace]]\nname = \"{name}\"\npath = {quoted}\n"));
    }
    Zeroizing::new(text)
}

/// Makes a file that only its owner can read, unless there is one. It is there whole or not at all.
fn create(
    path: &Path,
    content: impl FnOnce() -> Result<Zeroizing<String>, NoEntropy>,
) -> Result<(), InstallationError> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    write_new(path, content()?.as_bytes()).map_err(at(path))
}

/// Writes a new file that only its owner can read: beside its place first, then into it. Whoever made one there meanwhile keeps it.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    // Left by a program that had this process id and is gone.
    let _ = fs::remove_file(&beside);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        match fs::hard_link(&beside, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    let removed = fs::remove_file(&beside);
    written?;
    removed?;
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// The name of a file that becomes another one, as those are named that a founding removes if they are left.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new-{}", std::process::id()))
}

/// Reads a file that only its owner may be able to read.
fn read_private(path: &Path) -> Result<Zeroizing<String>, InstallationError> {
    private(path, Kind::File)?;
    let mut text = Zeroizing::new(String::new());
    fs::File::open(path).and_then(|file| file.take(LONGEST_SECRET).read_to_string(&mut text)).map_err(at(path))?;
    Ok(Zeroizing::new(text.trim_end().to_owned()))
}

/// Whether a file belongs to this user and to nobody else.
pub(crate) fn is_private(path: &Path) -> Result<(), InstallationError> {
    private(path, Kind::File)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// Whether something belongs to this user and to nobody else.
fn private(path: &Path, kind: Kind) -> Result<(), InstallationError> {
    let metadata = fs::symlink_metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => InstallationError::Missing(path.to_owned()),
        _ => at(path)(error),
    })?;
    let right_kind = match kind {
        Kind::File => metadata.is_file(),
        Kind::Directory => metadata.is_dir(),
    };
    if !right_kind {
        return Err(InstallationError::WrongKind(path.to_owned()));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(InstallationError::Foreign(path.to_owned()));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let wanted = if kind == Kind::Directory { 0o700 } else { 0o600 };
        return Err(InstallationError::Open { path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> InstallationError + use<> {
    let path = path.to_owned();
    move |error| InstallationError::Disk { path, error: error.to_string() }
}

/// Why a state directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallationError {
    /// There is none.
    #[error("there is no state directory at {}", .0.display())]
    Absent(PathBuf),
    /// A part of it was never made.
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Who is let in cannot be told.
    #[error("{cause}")]
    Founding {
        /// Why not.
        cause: String,
        /// What to do about it.
        advice: String,
    },
    /// The authority cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The device of this command line cannot be used.
    #[error(transparent)]
    Device(#[from] KeepingError),
    /// Others could read or change it.
    #[error("{} has mode {mode:04o}, so others can reach it", .path.display())]
    Open {
        /// What.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What its mode must be.
        wanted: u32,
    },
    /// It belongs to somebody else.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// It is a link, a directory or something else that it should not be.
    #[error("{} is not what it should be", .0.display())]
    WrongKind(PathBuf),
    /// Its path cannot be told to policy.
    #[error("the path {} cannot be used", .0.display())]
    Unnameable(PathBuf),
    /// It cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Disk {
        /// What.
        path: PathBuf,
        /// What the system says.
        error: String,
    },
    /// A credential that is none, or another one's.
    #[error("{} holds no credential of its own", .0.display())]
    NoCredential(PathBuf),
    /// None was made.
    #[error("agents on this machine have no token")]
    NoAgentToken,
    /// A PIN that cannot be used.
    #[error("{0}")]
    Pin(String),
    /// No randomness for a credential.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl From<FoundingError> for InstallationError {
    fn from(error: FoundingError) -> Self {
        Self::Founding { cause: error.to_string(), advice: error.advice() }
    }
}

impl InstallationError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Absent(_) => "make one: `palyra init`, or start a daemon: `palyra up`".to_owned(),
            Self::Missing(_) => "make it: `palyra init`, or start a daemon: `palyra up`".to_owned(),
            Self::Config(error) => error.advice().to_owned(),
            Self::Founding { advice, .. } => advice.clone(),
            Self::Authority(error) => error.advice().to_owned(),
            Self::Device(error) => error.advice().to_owned(),
            Self::Open { path, wanted, .. } => format!("chmod {wanted:03o} {}", path.display()),
            Self::Foreign(_) => "use your own state directory: set PALYRA_HOME, or run as its owner".to_owned(),
            Self::WrongKind(path) => format!("look at it, then move it away: {}", path.display()),
            Self::Unnameable(_) => "set PALYRA_HOME to an absolute path in UTF-8".to_owned(),
            Self::Disk { .. } => "check who owns the state directory, or name another one with PALYRA_HOME".to_owned(),
            Self::NoCredential(path) => format!("remove it, and the next start makes a new one: rm {}", path.display()),
            Self::NoAgentToken => {
                "start the daemon anew: it makes one while `api_tokens` is switched on and `user:owner` is a member"
                    .to_owned()
            }
            Self::Pin(_) => "choose another one".to_owned(),
            Self::NoEntropy(_) => "the system gives no random numbers; try again".to_owned(),
        }
    }
}

/// Longer than any file here.
const LONGEST_SECRET: u64 = 64 << 10;

const IDENTITY: &str = "identity";
const PRESENCE: &str = "presence";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use palyra_access::{AccessRegistry, Actor, FeatureFlag, Switch};
    use palyra_types::{clock::SystemClock, entropy::SystemEntropy};

    use super::*;

    fn home(directory: &Path) -> StateHome {
        StateHome::find(|name| (name == "PALYRA_HOME").then(|| directory.join("state").into())).unwrap()
    }

    fn make(home: &StateHome) -> Result<Installation, InstallationError> {
        Installation::make(home, None, [], (Arc::new(SystemClock::new()), Arc::new(SystemEntropy)))
    }

    #[test]
    fn what_is_made_is_found_again_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        assert!(matches!(Installation::find(&home, []), Err(InstallationError::Absent(_))));
        let made = make(&home).unwrap();
        let (registry, token) = (fs::read(made.files().registry).unwrap(), agent_token(&home).unwrap());
        let again = make(&home).unwrap();
        assert_eq!(made.identity(), again.identity());
        assert_eq!(made.authority().fingerprint(), again.authority().fingerprint());
        assert_eq!((fs::read(made.files().registry).unwrap(), agent_token(&home).unwrap()), (registry, token));
    }

    #[test]
    fn whatever_others_could_read_is_refused_with_the_fix() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        make(&home).unwrap();
        let token = Files::of(&home).device;
        for (path, mode) in [(token.as_path(), 0o640), (home.path(), 0o711)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Installation::find(&home, []).unwrap_err();
            assert!(error.advice().contains("chmod "), "{error}: {}", error.advice());
            fs::set_permissions(path, before).unwrap();
        }
        Installation::find(&home, []).unwrap();
    }

    #[test]
    fn whoever_may_write_the_state_directory_gets_in_again_whatever_is_switched_off() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        let made = make(&home).unwrap();
        let files = made.files();
        switch_off(&files, &[FeatureFlag::DevicePairing, FeatureFlag::ApiTokens]);
        fs::remove_file(&files.device).unwrap();
        fs::remove_file(&files.agent_token).unwrap();
        let again = make(&home).unwrap();
        assert_ne!(made.identity().device, again.identity().device);
        assert_eq!(
            agent_token(&home),
            Err(InstallationError::NoAgentToken),
            "none is made while tokens are switched off"
        );
    }

    fn switch_off(files: &Files, features: &[FeatureFlag]) {
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        let store = Arc::new(palyra_access::FileStore::open(&files.registry).unwrap());
        let registry = AccessRegistry::open(store, clock, entropy).unwrap();
        let owner = Actor::in_person(founding::founder().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for &feature in features {
            runtime.block_on(async {
                let pending = registry.prepare(|state, _| state.set_feature(&owner, feature, Switch::Off)).await;
                pending.unwrap().commit().await.unwrap();
            });
        }
    }

    #[test]
    fn a_planted_link_in_the_place_of_a_credential_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        make(&home).unwrap();
        let token = Files::of(&home).agent_token;
        fs::remove_file(&token).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &token).unwrap();
        assert!(matches!(Installation::find(&home, []), Err(InstallationError::WrongKind(_))));
    }

    #[test]
    fn a_pin_is_kept_as_its_hash_and_can_be_set_again() {
        let directory = tempfile::tempdir().unwrap();
        let made = make(&home(directory.path())).unwrap();
        assert_eq!(made.presence(), Ok(None));
        assert!(matches!(set_presence(made.home(), "12345"), Err(InstallationError::Pin(_))));
        for pin in ["482913", "918273"] {
            set_presence(made.home(), pin).unwrap();
            let kept = made.presence().unwrap().unwrap();
            assert!(kept.starts_with("$argon2id$") && !kept.contains(pin), "{}", *kept);
        }
    }

    #[test]
    fn a_workspace_with_a_strange_path_is_configured_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        let path = AbsolutePath::parse("/srv/a \"b\" 'c' ]#").unwrap();
        let named = (WorkspaceName::parse("shop").unwrap(), path.clone());
        let world: (Arc<dyn Clock>, Arc<dyn Entropy>) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        let made = Installation::make(&home, Some(&named), [], world).unwrap();
        assert_eq!(made.config().workspace.iter().map(|one| &one.path).collect::<Vec<_>>(), [&path]);
    }
}
