//! The daemons that this device is paired with: one file for each, in `paired` of the state directory.
//!
//! Guarantees: a name is a file of that directory and nothing else; a file is there whole or not at all, and replaces no other, but for one
//! that is named to be replaced.
//! Does not: ask whether the daemon still knows this device.

use std::{fmt, fs, io, path::PathBuf, str::FromStr};

use palyra_identity::{Address, DeviceIdentity, KeepingError, private_file};
use palyra_types::{StateHome, visible::visible};

use crate::{exit::Exit, failure::Failure};

/// What this device calls a daemon. It is also the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DaemonName(String);

impl DaemonName {
    /// Reads a name.
    pub(crate) fn parse(text: &str) -> Result<Self, DaemonNameError> {
        let allowed = |(index, c): (usize, char)| c.is_ascii_alphanumeric() || (index > 0 && "._-".contains(c));
        let fits = (1..=LONGEST_NAME).contains(&text.len()) && text.chars().enumerate().all(allowed);
        if fits { Ok(Self(text.to_owned())) } else { Err(DaemonNameError(text.to_owned())) }
    }

    /// The name that an address suggests: its host.
    pub(crate) fn of(address: &Address) -> Self {
        let host: String = address.host().as_str().chars().map(|c| if c == ':' { '-' } else { c }).collect();
        let host: String = host.trim_matches('-').chars().take(LONGEST_NAME - ROOM_FOR_A_NUMBER).collect();
        Self::parse(&host).unwrap_or_else(|_| Self("daemon".to_owned()))
    }

    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DaemonName {
    type Err = DaemonNameError;
    fn from_str(text: &str) -> Result<Self, DaemonNameError> {
        Self::parse(text)
    }
}

/// Not the name of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no name; use 1 to {LONGEST_NAME} letters, digits and . _ -, starting with a letter or a digit", visible(.0))]
pub(crate) struct DaemonNameError(String);

/// A daemon that this device is paired with.
#[derive(Debug)]
pub(crate) struct PairedDaemon {
    /// Its name here.
    pub(crate) name: DaemonName,
    /// What this device is to it.
    pub(crate) identity: DeviceIdentity,
    /// Where that is kept.
    pub(crate) file: PathBuf,
}

/// All the daemons that this device is paired with.
#[derive(Debug, Clone)]
pub(crate) struct Paired {
    directory: PathBuf,
}

impl Paired {
    /// Those of a state directory.
    pub(crate) fn of(home: &StateHome) -> Self {
        Self { directory: home.path().join(DIRECTORY) }
    }

    /// Makes their directory if there is none, and removes what interrupted pairings have left in it.
    pub(crate) fn make(home: &StateHome) -> Result<Self, Failure> {
        let paired = Self::of(home);
        let made = private_file::make_directory(home.path())
            .and_then(|()| private_file::make_directory(&paired.directory))
            .and_then(|()| private_file::tidy(&paired.directory));
        made.map_err(|error| unusable(&error, error.advice()))?;
        Ok(paired)
    }

    /// The names of all of them.
    pub(crate) fn names(&self) -> Result<Vec<DaemonName>, Failure> {
        let unreadable = |error: io::Error| {
            let cause = format!("{}: {error}", self.directory.display());
            unusable(&cause, "check who owns the state directory")
        };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(unreadable)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(unreadable)?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(EXTENSION)).map(DaemonName::parse);
            names.extend(name.and_then(Result::ok));
        }
        names.sort();
        Ok(names)
    }

    /// The daemon of this name.
    pub(crate) fn read(&self, name: &DaemonName) -> Result<PairedDaemon, Failure> {
        let file = self.file(name);
        if fs::symlink_metadata(&file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(self.unpaired(name)?);
        }
        let identity = DeviceIdentity::read(&file).map_err(|error| unusable(&error, error.advice()))?;
        Ok(PairedDaemon { name: name.clone(), identity, file })
    }

    /// Forgets the daemon of this name, and says where what was kept of it was.
    pub(crate) fn forget(&self, name: &DaemonName) -> Result<PathBuf, Failure> {
        let file = self.file(name);
        match fs::remove_file(&file) {
            Ok(()) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.unpaired(name)?),
            Err(error) => {
                let cause = format!("{}: {error}", file.display());
                Err(unusable(&cause, "check who owns the state directory"))
            }
        }
    }

    /// The only one there is, or nothing if there is none.
    pub(crate) fn only(&self) -> Result<Option<PairedDaemon>, Failure> {
        match self.names()?.as_slice() {
            [] => Ok(None),
            [name] => self.read(name).map(Some),
            several => {
                let cause = format!("this device is paired with {} daemons: {}", several.len(), list(several));
                let help = "name one: `palyra --at NAME …`, or set PALYRA_AT";
                Err(Failure::new(Exit::Usage, "several_daemons", "it is not said which daemon is meant", cause, help))
            }
        }
    }

    /// Writes an identity down that its daemon does not count on yet: not under its name, but so that no power cut loses it.
    pub(crate) fn keep(&self, identity: DeviceIdentity, place: Place) -> Result<Pending, KeepingError> {
        // Named like what an interrupted write leaves, so that it is removed by whoever comes next if this program is killed.
        let file = self.directory.join(format!(".pairing{EXTENSION}.new-{}", std::process::id()));
        let pending = Pending { paired: self.clone(), identity, file, place };
        pending.identity.write(&pending.file)?;
        Ok(pending)
    }

    /// A name like this that no daemon has.
    pub(crate) fn unused(&self, wanted: &DaemonName) -> DaemonName {
        let numbered = (2..).map(|number: u32| DaemonName(format!("{wanted}-{number}")));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        names.find(|name| fs::symlink_metadata(self.file(name)).is_err()).unwrap_or_else(|| wanted.clone())
    }

    /// Whether there is a daemon of this name.
    pub(crate) fn has(&self, name: &DaemonName) -> bool {
        fs::symlink_metadata(self.file(name)).is_ok()
    }

    /// That there is no daemon of this name.
    fn unpaired(&self, name: &DaemonName) -> Result<Failure, Failure> {
        let cause = match self.names()?.as_slice() {
            [] => "it is paired with none".to_owned(),
            names => format!("it is paired with {}", list(names)),
        };
        let what = format!("this device is not paired with a daemon named `{name}`");
        let help = "pair it: `palyra devices pair` there, then `palyra pair ADDRESS` here";
        Ok(Failure::new(Exit::Failure, "not_paired", what, cause, help))
    }

    fn file(&self, name: &DaemonName) -> PathBuf {
        self.directory.join(format!("{name}{EXTENSION}"))
    }
}

/// Whether an identity may take the place of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It gets a name that no daemon has.
    New,
    /// It replaces what is kept under its name.
    Taken,
}

/// An identity that is written down and not in use yet. It goes away with this value.
#[derive(Debug)]
pub(crate) struct Pending {
    paired: Paired,
    identity: DeviceIdentity,
    file: PathBuf,
    place: Place,
}

impl Pending {
    /// Puts it in use under the name that it has, or one like it if that is taken meanwhile and not to be replaced.
    pub(crate) fn settle(mut self) -> Result<PairedDaemon, String> {
        let wanted = DaemonName::parse(&self.identity.name).map_err(|error| error.to_string())?;
        let mut name = wanted.clone();
        let file = loop {
            let file = self.paired.file(&name);
            let settled = match self.place {
                // Unlike a renaming, a link takes nobody's place.
                Place::New => fs::hard_link(&self.file, &file),
                Place::Taken => fs::rename(&self.file, &file),
            };
            match settled {
                Ok(()) => break file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    name = self.paired.unused(&wanted);
                    self.identity.name = name.to_string();
                    self.identity.write(&self.file).map_err(|error| error.to_string())?;
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        let directory = fs::File::open(&self.paired.directory).and_then(|directory| directory.sync_all());
        directory.map_err(|error| error.to_string())?;
        Ok(PairedDaemon { name, identity: self.identity.clone(), file })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

fn list(names: &[DaemonName]) -> String {
    names.iter().map(DaemonName::as_str).collect::<Vec<_>>().join(", ")
}

fn unusable(error: &dyn fmt::Display, help: &str) -> Failure {
    let what = "what this device keeps of its daemons cannot be used";
    Failure::new(Exit::Failure, "paired_unusable", what, error.to_string(), help)
}

const DIRECTORY: &str = "paired";
const EXTENSION: &str = ".json";
const LONGEST_NAME: usize = 64;
/// For `-2` and more behind a name.
const ROOM_FOR_A_NUMBER: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use palyra_identity::{Authority, issue_device, new_device_key};
    use palyra_types::{Clock, DeviceId, Timestamp, clock::ManualClock, entropy::SystemEntropy};

    use super::*;

    /// What a device is to a daemon of this authority.
    pub(crate) fn identity(authority: &Authority, clock: &dyn Clock) -> DeviceIdentity {
        let (key, request) = new_device_key().unwrap();
        let device = DeviceId::parse("laptop").unwrap();
        let certificate = issue_device(authority, &request, &device, clock, &SystemEntropy).unwrap();
        DeviceIdentity {
            name: "box".into(),
            address: Address::parse("box.lan:7718").unwrap(),
            authorities: authority.bundle_pem(),
            certificate: certificate.pem,
            key,
            device,
            principal: "user:ada".into(),
            role: Some("owner".into()),
        }
    }

    fn paired() -> (tempfile::TempDir, Paired, DeviceIdentity) {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home").into_os_string();
        let home = StateHome::find(|name| (name == "PALYRA_HOME").then(|| home.clone())).unwrap();
        let clock = ManualClock::at(Timestamp::from_unix_millis(1_800_000_000_000));
        let identity = identity(&Authority::create(&clock, &SystemEntropy).unwrap(), &clock);
        (directory, Paired::make(&home).unwrap(), identity)
    }

    fn names(paired: &Paired) -> Vec<String> {
        paired.names().unwrap().iter().map(ToString::to_string).collect()
    }

    fn files(paired: &Paired) -> usize {
        fs::read_dir(&paired.directory).unwrap().count()
    }

    #[test]
    fn a_name_is_a_plain_file_name_and_an_address_suggests_one() {
        for text in ["", ".box", "-box", "a/b", "..", "a b", "bö", &"x".repeat(65)] {
            assert_eq!(DaemonName::parse(text), Err(DaemonNameError(text.to_owned())), "{text}");
        }
        let of = |address: &str| DaemonName::of(&Address::parse(address).unwrap()).to_string();
        assert_eq!(of("box.lan:7718"), "box.lan");
        assert_eq!(of("192.0.2.7:7718"), "192.0.2.7");
        assert_eq!(of("[2001:db8::7]:7718"), "2001-db8--7");
        assert_eq!(of("[::1]:7718"), "1");
    }

    #[test]
    fn what_is_pending_has_no_name_and_goes_away_unless_it_is_settled() {
        let (_directory, paired, identity) = paired();
        let pending = paired.keep(identity.clone(), Place::New).unwrap();
        assert_eq!((names(&paired), files(&paired)), (vec![], 1));
        drop(pending);
        assert_eq!(files(&paired), 0);

        let settled = paired.keep(identity.clone(), Place::New).unwrap().settle().unwrap();
        assert_eq!((names(&paired), files(&paired)), (vec!["box".to_owned()], 1));
        assert_eq!(paired.read(&settled.name).unwrap().identity, identity);
        assert_eq!(paired.only().unwrap().unwrap().name, settled.name);
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_not_taken_over() {
        let (_directory, paired, first) = paired();
        let second = DeviceIdentity { principal: "user:bob".into(), ..first.clone() };
        let settle = |identity| paired.keep(identity, Place::New).unwrap().settle().unwrap();
        let (one, two) = (settle(first), settle(second));
        assert_eq!((one.name.as_str(), two.name.as_str()), ("box", "box-2"));
        let read = |daemon: &PairedDaemon| paired.read(&daemon.name).unwrap().identity;
        assert_eq!((read(&one).principal, read(&two).principal), ("user:ada".into(), "user:bob".into()));
        assert_eq!(read(&two).name, "box-2");
        assert!(paired.only().unwrap_err().cause.ends_with("paired with 2 daemons: box, box-2"));
    }
    #[test]
    fn what_is_to_be_replaced_is_replaced_under_its_name_and_can_be_forgotten() {
        let (_directory, paired, first) = paired();
        let second = DeviceIdentity { principal: "user:bob".into(), ..first.clone() };
        let one = paired.keep(first, Place::New).unwrap().settle().unwrap();
        let two = paired.keep(second.clone(), Place::Taken).unwrap().settle().unwrap();
        assert_eq!((one.name.as_str(), two.name.as_str(), files(&paired)), ("box", "box", 1));
        assert_eq!(paired.read(&two.name).unwrap().identity, second);

        assert_eq!(paired.forget(&two.name).unwrap(), two.file);
        assert_eq!(files(&paired), 0);
        let gone = paired.forget(&two.name).unwrap_err();
        assert_eq!((gone.code.as_ref(), gone.cause.as_str()), ("not_paired", "it is paired with none"));
    }
}
