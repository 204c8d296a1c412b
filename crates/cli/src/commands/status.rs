//! `palyra status`: whether a daemon is running here.

use clap::Args;
use palyra_api::DEFAULT_LOCAL_URL;
use palyra_client::{Client, ClientError, Endpoint};

use crate::{Outcome, exit::Exit, failure::Failure, terminal::Terminal};

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Where the daemon listens.
    #[arg(long, env = "PALYRA_URL", default_value = DEFAULT_LOCAL_URL)]
    url: String,
}

pub(crate) fn run(args: &StatusArgs, terminal: &Terminal) -> Outcome {
    let endpoint = Endpoint::parse(&args.url).map_err(|error| {
        Failure::new(
            Exit::Usage,
            "url_invalid",
            "the address cannot be used",
            error.to_string(),
            "check PALYRA_URL and --url",
        )
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::new(
            Exit::Failure,
            "runtime",
            "the program cannot start",
            error.to_string(),
            "check the limits of this shell",
        )
    })?;
    let health = runtime.block_on(Client::local(endpoint).health()).map_err(|error| {
        let help = match &error {
            ClientError::Unreachable { .. } => "start a daemon first; `palyra policy` and `palyra tour` need none",
            ClientError::Slow { .. } | ClientError::Lost { .. } => "look at the daemon's log",
            _ => "check PALYRA_URL and --url",
        };
        Failure::new(Exit::Unreachable, "unreachable", "no status", error.to_string(), help)
    })?;
    if terminal.json {
        terminal.document("status", &health);
    } else {
        terminal.out(format!("{} {} at {endpoint}", health.status, health.version));
    }
    Ok(Exit::Ok)
}
