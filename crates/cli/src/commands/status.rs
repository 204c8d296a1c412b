//! `palyra status`: whether the daemon is running.
//!
//! Guarantees: `ok` is said about a daemon that showed a certificate of the authority that this device knows and lets this device in, or
//! about an address that was named, for which nothing more is claimed. Whoever else answers is told apart.

use std::time::Duration;

use clap::Args;
use palyra_api::health::Health;
use palyra_client::{Client, ClientError, Endpoint};
use palyra_daemon::{Config, environment};

use crate::{
    Outcome,
    at::At,
    connection::{Connection, block_on, home},
    exit::Exit,
    failure::Failure,
    terminal::{Terminal, shown},
};

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Ask whoever listens there. Without it, the daemon of the state directory, which has to show that it is that.
    #[arg(long, env = "PALYRA_URL")]
    url: Option<String>,
}

pub(crate) fn run(args: &StatusArgs, at: &At, terminal: &Terminal) -> Outcome {
    let (health, place) = match &args.url {
        Some(url) => {
            at.unnamed("asking whoever listens at an address")?;
            let (health, endpoint) = named(url)?;
            if !terminal.json {
                terminal.talk("whose daemon that is was not looked at; `palyra status` without an address does that");
            }
            (health, endpoint.to_string())
        }
        None => own(at, terminal)?,
    };
    if terminal.json {
        terminal.document("status", &health);
    } else {
        terminal.out(format!("{} {} at {place}", shown(&health.status), shown(&health.version)));
    }
    Ok(Exit::Ok)
}

/// The daemon at an address, whoever's it is.
fn named(url: &str) -> Result<(Health, Endpoint), Failure> {
    const HELP: &str = "check PALYRA_URL and --url";
    let endpoint = Endpoint::parse(url).map_err(|error| {
        Failure::new(Exit::Usage, "url_invalid", "the address cannot be used", error.to_string(), HELP)
    })?;
    let health = block_on(async { Ok(Client::local(endpoint).health().await?) }).map_err(|failure| {
        let help = match failure.code.as_ref() {
            "unreachable" => NOT_STARTED.to_owned(),
            "slow" | "lost" => failure.help.clone(),
            _ => HELP.to_owned(),
        };
        Failure { exit: Exit::Unreachable, what: "no status".to_owned(), help, ..failure }
    })?;
    Ok((health, endpoint))
}

/// The daemon that this device knows, and where it is.
fn own(at: &At, terminal: &Terminal) -> Result<(Health, String), Failure> {
    let connection = match Connection::find(at, terminal) {
        Ok(connection) => connection,
        // Nothing was ever made here.
        Err(failure) if failure.exit == Exit::Unreachable || failure.code == "no_home" => {
            let what = "there is no daemon of yours".to_owned();
            return Err(beside(Failure { what, ..failure }, where_one_would_be()));
        }
        // What is here and cannot be used says where its daemon would be, so nobody else is asked.
        Err(failure) => return Err(failure),
    };
    let health = connection.run(async |daemon| {
        // SECURITY: anybody can answer that they are well; this asks over TLS that trusts one authority, as this device.
        daemon.identity().await?;
        Ok(daemon.health().await?)
    });
    match connection.place() {
        Ok(_) => of_this_directory(health, connection.local()?),
        Err(name) => match health {
            Ok(health) => Ok((health, format!("https://{} ({name})", connection.identity().address))),
            Err(failure) if matches!(failure.code.as_ref(), "unreachable" | "stranger") => {
                Err(Failure { what: format!("the daemon `{name}` does not answer"), ..failure })
            }
            Err(failure) => Err(failure),
        },
    }
}

/// The daemon of this state directory, or who answers in its place.
fn of_this_directory(health: Result<Health, Failure>, local: Endpoint) -> Result<(Health, String), Failure> {
    let failure = match health {
        Ok(health) => return Ok((health, local.to_string())),
        Err(failure) => failure,
    };
    let what = "the daemon of this state directory does not answer".to_owned();
    match failure.code.as_ref() {
        "unreachable" => Err(beside(Failure { what, help: NOT_STARTED.to_owned(), ..failure }, Some(local))),
        "stranger" => Err(beside(Failure { what, ..failure }, Some(local))),
        _ => Err(failure),
    }
}

/// A failure that also says who answers where the daemon should.
fn beside(failure: Failure, local: Option<Endpoint>) -> Failure {
    let Some(answer) = local.and_then(who_answers) else { return failure };
    let help = "if it is of another state directory, name that with PALYRA_HOME; to have your own beside it, \
                choose other ports: `palyra init`, then [listen] in config.toml";
    Failure { cause: format!("{}; {answer}", failure.cause), help: help.to_owned(), ..failure }
}

/// Who answers at an address, in words.
fn who_answers(endpoint: Endpoint) -> Option<String> {
    let client = Client::local(endpoint).with_patience(PATIENCE);
    let answer = block_on(async { Ok(client.health().await) }).ok()?;
    match answer {
        Ok(_) => Some(format!("a daemon answers at {endpoint}, but nothing shows that it is yours")),
        Err(ClientError::Unreachable { .. }) => None,
        Err(_) => Some(format!("another program listens at {endpoint}")),
    }
}

/// Where a daemon that is started here would listen for agents.
fn where_one_would_be() -> Option<Endpoint> {
    let config = home().ok().and_then(|home| Config::read(&home, environment()).ok()).unwrap_or_default();
    Endpoint::parse(&format!("http://{}", config.listen.local)).ok()
}

const NOT_STARTED: &str = "start it: `palyra up`; `palyra policy` and `palyra tour` need no daemon";

/// How long somebody may take who is not the daemon that was asked for.
const PATIENCE: Duration = Duration::from_secs(1);
