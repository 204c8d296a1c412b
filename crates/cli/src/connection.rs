//! The way to the daemon that a command is for, as this device or as an agent.
//!
//! Guarantees: this device shows its certificate to a daemon of the authority that it was paired with, and to nobody else; a command that
//! names a daemon reaches that one or none; one that names none does not leave this machine as long as there is an installation on it. What
//! the device keeps is renewed once a command is done, never in its course.

use std::{env, fmt, io, path::PathBuf};

use palyra_client::{Bearer, Client, DeviceKeys, Endpoint};
use palyra_daemon::{Contact, InstallationError, environment};
use palyra_identity::{Address, DeviceIdentity, KeepingError, private_file::PrivateFileError};
use palyra_types::{StateHome, clock::SystemClock};

use crate::{
    at::{At, elsewhere},
    exit::Exit,
    failure::Failure,
    paired::{DaemonName, Paired, PairedDaemon},
    renewal::Held,
    terminal::Terminal,
};

/// What there is to connect with.
pub(crate) struct Connection {
    way: Way,
    terminal: Terminal,
}

enum Way {
    /// To the daemon of this state directory.
    Here(Contact),
    /// To one that this device is paired with.
    Away(PairedDaemon),
}

impl Connection {
    /// Finds the daemon that is meant.
    pub(crate) fn find(at: &At, terminal: &Terminal) -> Result<Self, Failure> {
        let home = home()?;
        let way = match at {
            At::Named(name) => Way::Away(Paired::of(&home).read(name)?),
            At::Unnamed => match Contact::find(&home, environment()) {
                Ok(contact) => Way::Here(contact),
                Err(error) if is_bare(&home) => match Paired::of(&home).only()? {
                    Some(only) => Way::Away(only),
                    None => return Err(no_installation(&home, &error)),
                },
                Err(error) => return Err(no_installation(&home, &error)),
            },
        };
        Ok(Self { way, terminal: *terminal })
    }

    /// The way to a daemon that this device is paired with.
    pub(crate) const fn away(daemon: PairedDaemon, terminal: &Terminal) -> Self {
        Self { way: Way::Away(daemon), terminal: *terminal }
    }

    /// Runs what talks to the daemon. Once it is done, what this device keeps is renewed if it is time.
    pub(crate) fn run<T>(&self, work: impl AsyncFnOnce(&Client) -> Result<T, Failure>) -> Result<T, Failure> {
        let daemon = self.daemon()?;
        let outcome = block_on(async {
            let outcome = work(&daemon).await;
            if outcome.as_ref().err().is_none_or(was_let_in) {
                let held = Held { file: &self.file(), address: &self.identity().address };
                held.renew_if_due(&daemon, &SystemClock::new(), &self.terminal).await;
            }
            outcome
        });
        outcome.map_err(|failure| self.advised(failure))
    }

    /// The daemon as this device meets it.
    pub(crate) fn daemon(&self) -> Result<Client, Failure> {
        let DeviceIdentity { address, authorities, certificate, key, .. } = self.identity();
        let keys = DeviceKeys { authorities, certificate, key };
        Client::control(&address.to_string(), keys).map_err(|error| unusable(&error))
    }

    /// The daemon as agents meet it: over plain HTTP on loopback, with the agents' credential. Only once the daemon of this installation
    /// has shown that it is there: whoever else sits on the port would learn the credential.
    pub(crate) async fn agent(&self) -> Result<Client, Failure> {
        let contact = self.here("speaking as an agent")?;
        self.daemon()?.readiness().await?;
        let client = Client::local(self.local()?);
        let token = contact.agent_token().map_err(|error| no_agent_token(&error))?;
        Ok(client.with_bearer(Bearer::parse(&token).map_err(|error| unusable(&error))?))
    }

    /// Where agents meet it.
    pub(crate) fn local(&self) -> Result<Endpoint, Failure> {
        let contact = self.here("the listener for agents")?;
        Endpoint::parse(&format!("http://{}", contact.local())).map_err(|error| unusable(&error))
    }

    /// The installation, for what makes sense on the daemon's own machine alone.
    pub(crate) fn here(&self, what: &str) -> Result<&Contact, Failure> {
        self.place().map_err(|name| {
            let cause = format!("there is no installation here, and the daemon is `{name}`, on another machine");
            elsewhere(what, &cause, "do it on the daemon's own machine; `palyra init` makes an installation here")
        })
    }

    /// The installation that the daemon is of, or the name of a daemon that is elsewhere.
    pub(crate) const fn place(&self) -> Result<&Contact, &DaemonName> {
        match &self.way {
            Way::Here(contact) => Ok(contact),
            Way::Away(paired) => Err(&paired.name),
        }
    }

    /// What this device is to the daemon.
    pub(crate) fn identity(&self) -> &DeviceIdentity {
        match &self.way {
            Way::Here(contact) => contact.identity(),
            Way::Away(paired) => &paired.identity,
        }
    }

    /// Where that is kept.
    fn file(&self) -> PathBuf {
        match &self.way {
            Way::Here(contact) => contact.identity_file(),
            Way::Away(paired) => paired.file.clone(),
        }
    }

    /// A failure with what helps here.
    pub(crate) fn advised(&self, failure: Failure) -> Failure {
        let address = &self.identity().address;
        match &self.way {
            Way::Here(_) => {
                let made =
                    "stop the daemon; `palyra init` makes the certificate anew, and `palyra up` starts the daemon";
                let other =
                    format!("if the authority was replaced: {made}; if another program listens there, stop that");
                let again = self.once_refused();
                let failure = failure.advised("not_taken", made).advised("expired", made).advised("stranger", &other);
                failure.advised("revoked", &again).advised("unknown_device", &again)
            }
            Way::Away(PairedDaemon { name, .. }) => {
                let again = pair_again(name, address);
                let reach = format!("check that it runs, and that this machine reaches {address}");
                let other = format!("if its authority was replaced, or the daemon was made anew: {again}");
                let gone = format!("{again}; or forget it: `palyra pair --forget {name}`");
                let failure =
                    failure.advised("revoked", &gone).advised("unknown_device", &gone).advised("expired", &gone);
                failure.advised("not_taken", &gone).advised("unreachable", &reach).advised("stranger", &other)
            }
        }
    }

    /// What to do with what this device keeps, once the daemon lets it in no more.
    pub(crate) fn once_refused(&self) -> String {
        match &self.way {
            Way::Here(contact) => {
                let file = contact.identity_file();
                format!("stop the daemon and remove {}; `palyra init` makes a new device", file.display())
            }
            Way::Away(PairedDaemon { name, .. }) => format!("`palyra pair --forget {name}` removes it"),
        }
    }
}

/// What to do about a daemon elsewhere that does not let this device in any more. It is kept under the same name again.
pub(crate) fn pair_again(name: &DaemonName, address: &Address) -> String {
    format!("pair again: `palyra devices pair` there, then `palyra pair {address} --name {name}` here")
}

/// A failure of what was asked with the agents' credential, with what helps about that.
pub(crate) fn advised_for_agents(failure: Failure) -> Failure {
    let help = "`palyra tokens list --all` shows the agents' token; if you remove its file, which `palyra paths` names, \
                the daemon makes a new one when it starts";
    let failure = failure.advised("revoked", help).advised("expired", help);
    failure.advised("unauthenticated", help).advised("missing_scope", help)
}

/// Finds the daemon that is meant and runs what talks to it.
pub(crate) fn meet<T>(
    at: &At,
    terminal: &Terminal,
    work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    Connection::find(at, terminal)?.run(work)
}

/// The state directory that the environment names.
pub(crate) fn home() -> Result<StateHome, Failure> {
    StateHome::find(|name| env::var_os(name)).map_err(|error| {
        let help = "set PALYRA_HOME to an absolute path";
        Failure::new(Exit::Failure, "no_home", "there is no state directory", error.to_string(), help)
    })
}

/// Runs what waits for something.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        let help = "check the limits of this shell";
        Failure::new(Exit::Failure, "runtime", "the program cannot start", error.to_string(), help)
    })?;
    let outcome = runtime.block_on(work);
    // A thread may still wait for the keyboard; nobody waits for it.
    runtime.shutdown_background();
    outcome
}

/// Whether a state directory holds no installation, not even half of one.
// SECURITY: an installation that cannot be used is an error. Falling back to another daemon would do there what was meant for this one.
pub(crate) fn is_bare(home: &StateHome) -> bool {
    let parts = ["config.toml", "access_registry.json", "identity", "journal"];
    // Not being allowed to look is not the same as not being there.
    let is_absent = |part: &str| {
        let found = home.path().join(part).symlink_metadata();
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    parts.into_iter().all(is_absent)
}

fn no_installation(home: &StateHome, error: &InstallationError) -> Failure {
    let missing = |cause: String, help: String| {
        // No daemon has ever been started here.
        Failure::new(Exit::Unreachable, "no_installation", "no daemon answers", cause, help)
    };
    match error {
        InstallationError::Absent(_) | InstallationError::Missing(_) if is_bare(home) => {
            missing(error.to_string(), NOTHING_HERE.to_owned())
        }
        InstallationError::Absent(_) | InstallationError::Missing(_) => missing(error.to_string(), error.advice()),
        InstallationError::Device(KeepingError::File(PrivateFileError::Missing(_))) if is_bare(home) => {
            missing(format!("there is no installation in {}", home.path().display()), NOTHING_HERE.to_owned())
        }
        InstallationError::Device(KeepingError::File(PrivateFileError::Missing(path))) => {
            let help = "make it: `palyra init`, or start a daemon: `palyra up`";
            missing(format!("{} is missing", path.display()), help.to_owned())
        }
        _ => {
            let what = format!("the state directory {} cannot be used", home.path().display());
            Failure::new(Exit::Failure, "no_installation", what, error.to_string(), error.advice())
        }
    }
}

fn no_agent_token(error: &InstallationError) -> Failure {
    Failure::new(
        Exit::Failure,
        "no_agent_token",
        "nobody can speak as an agent here",
        error.to_string(),
        error.advice(),
    )
}

/// Whether a failure is about something else than this device and the way to the daemon.
fn was_let_in(failure: &Failure) -> bool {
    failure.exit != Exit::Unreachable && !NOT_LET_IN.contains(&failure.code.as_ref())
}

fn unusable(error: &dyn fmt::Display) -> Failure {
    let help = "look at `identity` in the state directory; `palyra doctor` says more";
    Failure::new(Exit::Failure, "no_installation", "the state directory cannot be used", error.to_string(), help)
}

/// What to do where there is neither a daemon nor one to be reached.
const NOTHING_HERE: &str =
    "start a daemon here: `palyra up`; or become a device of one elsewhere: `palyra pair ADDRESS`";

/// What is told to whoever is not let in, or not any more.
const NOT_LET_IN: &[&str] = &["not_taken", "unauthenticated", "unknown_device", "revoked", "expired"];
