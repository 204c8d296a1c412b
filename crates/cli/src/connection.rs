//! The way to the daemon of this state directory, as its owner or as an agent.
//!
//! Guarantees: the owner's credential goes to whoever has the certificate that lies in the state directory, and to nobody else.

use std::{env, fmt, future::Future, path::PathBuf};

use palyra_client::{Bearer, Client, Endpoint};
use palyra_daemon::{Contact, InstallationError, environment};
use palyra_types::StateHome;

use crate::{exit::Exit, failure::Failure};

/// What there is to connect with.
pub(crate) struct Connection(Contact);

impl Connection {
    /// Finds the installation by the environment.
    pub(crate) fn find() -> Result<Self, Failure> {
        let home = home()?;
        Contact::find(&home, environment()).map(Self).map_err(|error| {
            // Without a state directory, or with half of one, no daemon has ever been started here.
            let (exit, what) = match &error {
                InstallationError::Absent(_) | InstallationError::Missing(_) => {
                    (Exit::Unreachable, "no daemon answers".to_owned())
                }
                _ => (Exit::Failure, format!("the state directory {} cannot be used", home.path().display())),
            };
            Failure::new(exit, "no_installation", what, error.to_string(), error.advice())
        })
    }

    /// The daemon as its owner meets it.
    pub(crate) fn owner(&self) -> Result<Client, Failure> {
        let client =
            Client::control(self.0.control(), self.0.keys().certificate()).map_err(|error| unusable(&error))?;
        Ok(client.with_bearer(Bearer::parse(self.0.keys().owner_token()).map_err(|error| unusable(&error))?))
    }

    /// The daemon as agents meet it: over plain HTTP on loopback, with the agents' credential. Only once the daemon of this installation
    /// has shown that it is there: whoever else sits on the port would learn the credential.
    pub(crate) async fn agent(&self) -> Result<Client, Failure> {
        self.owner()?.readiness().await?;
        let client = Client::local(self.local()?);
        Ok(client.with_bearer(Bearer::parse(self.0.keys().agent_token()).map_err(|error| unusable(&error))?))
    }

    /// Where agents meet it.
    pub(crate) fn local(&self) -> Result<Endpoint, Failure> {
        Endpoint::parse(&format!("http://{}", self.0.local())).map_err(|error| unusable(&error))
    }

    /// Sets the PIN that shows that a person is there.
    pub(crate) fn set_presence(&self, pin: &str) -> Result<(), Failure> {
        self.0.set_presence(pin).map_err(|error| {
            Failure::new(Exit::Failure, "no_pin", "the PIN is not set", error.to_string(), error.advice())
        })
    }

    /// Where the journal is.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.journal()
    }
}

/// The daemon as its owner meets it.
pub(crate) fn owner() -> Result<Client, Failure> {
    Connection::find()?.owner()
}

/// The state directory that the environment names.
pub(crate) fn home() -> Result<StateHome, Failure> {
    StateHome::find(|name| env::var_os(name)).map_err(|error| {
        let help = "set PALYRA_HOME to an absolute path";
        Failure::new(Exit::Failure, "no_home", "there is no state directory", error.to_string(), help)
    })
}

/// Runs what waits for a daemon.
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

fn unusable(error: &dyn fmt::Display) -> Failure {
    let help = "look at `identity` in the state directory; `palyra doctor` says more";
    Failure::new(Exit::Failure, "no_installation", "the state directory cannot be used", error.to_string(), help)
}
