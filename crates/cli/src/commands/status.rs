//! `palyra status`: whether a daemon is running here.

use clap::Args;
use palyra_api::DEFAULT_LOCAL_URL;
use palyra_client::{Client, Endpoint};

use crate::{
    Outcome,
    connection::{Connection, block_on},
    exit::Exit,
    failure::Failure,
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Where the daemon listens. Without it, where the state directory says.
    #[arg(long, env = "PALYRA_URL")]
    url: Option<String>,
}

pub(crate) fn run(args: &StatusArgs, terminal: &Terminal) -> Outcome {
    let endpoint = match &args.url {
        Some(url) => parse(url)?,
        None => match Connection::find() {
            Ok(connection) => connection.local()?,
            // Nothing was ever made here; a daemon of another state directory may be there.
            Err(failure) if failure.exit == Exit::Unreachable || failure.code == "no_home" => parse(DEFAULT_LOCAL_URL)?,
            // What is here and cannot be used says where its daemon would be, so nobody else is asked.
            Err(failure) => return Err(failure),
        },
    };
    let health = block_on(async { Ok(Client::local(endpoint).health().await?) }).map_err(|failure| {
        let help = match failure.code.as_ref() {
            "unreachable" => "start it: `palyra up`; `palyra policy` and `palyra tour` need no daemon".to_owned(),
            "slow" | "lost" => failure.help.clone(),
            _ => "check PALYRA_URL and --url".to_owned(),
        };
        Failure { exit: Exit::Unreachable, what: "no status".to_owned(), help, ..failure }
    })?;
    if terminal.json {
        terminal.document("status", &health);
    } else {
        terminal.out(format!("{} {} at {endpoint}", health.status, health.version));
    }
    Ok(Exit::Ok)
}

fn parse(url: &str) -> Result<Endpoint, Failure> {
    Endpoint::parse(url).map_err(|error| {
        let help = "check PALYRA_URL and --url";
        Failure::new(Exit::Usage, "url_invalid", "the address cannot be used", error.to_string(), help)
    })
}
