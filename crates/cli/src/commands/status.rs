//! `palyra status`: whether the daemon of this state directory is running.
//!
//! Guarantees: `ok` is said about a daemon that showed the certificate of this state directory and takes its owner's credential, or about an
//! address that was named, for which nothing more is claimed. Whoever else answers is told apart.

use std::time::Duration;

use clap::Args;
use palyra_api::health::Health;
use palyra_client::{Client, ClientError, Endpoint};
use palyra_daemon::{Config, environment};

use crate::{
    Outcome,
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

pub(crate) fn run(args: &StatusArgs, terminal: &Terminal) -> Outcome {
    let (health, endpoint) = match &args.url {
        Some(url) => {
            let told = named(url)?;
            if !terminal.json {
                terminal.talk("whose daemon that is was not looked at; `palyra status` without an address does that");
            }
            told
        }
        None => own()?,
    };
    if terminal.json {
        terminal.document("status", &health);
    } else {
        terminal.out(format!("{} {} at {endpoint}", shown(&health.status), shown(&health.version)));
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

/// The daemon of this state directory.
fn own() -> Result<(Health, Endpoint), Failure> {
    let connection = match Connection::find() {
        Ok(connection) => connection,
        // Nothing was ever made here.
        Err(failure) if failure.exit == Exit::Unreachable || failure.code == "no_home" => {
            let what = "there is no daemon of yours".to_owned();
            return Err(beside(Failure { what, ..failure }, where_one_would_be()));
        }
        // What is here and cannot be used says where its daemon would be, so nobody else is asked.
        Err(failure) => return Err(failure),
    };
    let (owner, local) = (connection.owner()?, connection.local()?);
    let health = block_on(async {
        // SECURITY: anybody can answer that they are well; this asks over TLS that trusts one certificate, and with the credential.
        owner.identity().await?;
        Ok(owner.health().await?)
    });
    match health {
        Ok(health) => Ok((health, local)),
        Err(failure) => {
            let what = "the daemon of this state directory does not answer".to_owned();
            match failure.code.as_ref() {
                "unreachable" => Err(beside(Failure { what, help: NOT_STARTED.to_owned(), ..failure }, Some(local))),
                "stranger" => Err(beside(Failure { what, ..failure }, Some(local))),
                _ => Err(failure),
            }
        }
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
