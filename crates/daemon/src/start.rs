//! From the environment to a daemon that serves, for `palyrad` and `palyra up`.

use std::{env, io, net::TcpListener, sync::Arc, time::Duration};

use palyra_types::{AbsolutePath, StateHome, WorkspaceName, home::NoHome};

use crate::{
    config::{Config, environment},
    daemon::{Daemon, StartError},
    installation::{Installation, InstallationError},
    log,
    world::World,
};

/// Starts a daemon on the state directory that the environment names, and serves until it is told to stop. Makes what is missing.
///
/// # Errors
/// When it does not start.
pub fn serve() -> Result<(), ServeError> {
    serve_with(None, World::real(), |_| {})
}

/// The same in another world, with a workspace for a new configuration, and a word when it serves.
///
/// # Errors
/// When it does not start.
pub fn serve_with(
    workspace: Option<&(WorkspaceName, AbsolutePath)>,
    world: World,
    ready: impl FnOnce(&Daemon),
) -> Result<(), ServeError> {
    let home = StateHome::find(|name| env::var_os(name))?;
    ports_are_free(&home)?;
    let made = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
    let installation = Installation::make(&home, workspace, environment(), made)?;
    log::begin(&installation.config().log).map_err(|error| ServeError::Log(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build()?;
    let served = runtime.block_on(async {
        let daemon = Daemon::start(&installation, world).await?;
        let (control, local) = (installation.control(), installation.local());
        tracing::info!(%control, %local, state = %home.path().display(), "serving");
        ready(&daemon);
        drop(installation);
        daemon.run().await;
        Ok(())
    });
    // A keyring that waits for its user must not keep the daemon from ending.
    runtime.shutdown_timeout(END_WITHIN);
    served
}

/// Looks whether the first daemon on a state directory could have its ports, before anything is made: whoever cannot start leaves nothing
/// behind. The ports are taken for good when the daemon starts. Where there is a state directory, that alone decides, and waits for what
/// an earlier daemon leaves behind.
///
/// # Errors
/// When a port is taken, or what is configured makes no sense.
pub fn ports_are_free(home: &StateHome) -> Result<(), ServeError> {
    if home.path().exists() {
        return Ok(());
    }
    let listen = Config::read(home, environment()).map_err(InstallationError::from)?.listen;
    for address in [listen.control, listen.local] {
        TcpListener::bind(address).map_err(|error| StartError::Port { address, error: error.to_string() })?;
    }
    Ok(())
}

/// Enough to use the machine, and few enough to leave it to what calls run.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}

/// How long work that blocks has to end when everything else has.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no place for a state directory.
    #[error(transparent)]
    Home(#[from] NoHome),
    /// The state directory is not in order.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// The daemon does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// What is configured about logging makes no sense.
    #[error("`level` under [log] makes no sense: {0}")]
    Log(String),
    /// The system gives no threads or signals.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ServeError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Home(_) => "set PALYRA_HOME to an absolute path".to_owned(),
            Self::Installation(error) => error.advice(),
            Self::Start(error) => error.advice(),
            Self::Log(_) => "write error, warn, info, debug or trace".to_owned(),
            Self::System(_) => "check the limits of this shell".to_owned(),
        }
    }
}
