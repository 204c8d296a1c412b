//! `palyra tokens rotate`: has a token followed by a new one.

use clap::Args;
use palyra_api::token::RotateToken;
use palyra_client::Client;

use super::{find, tell};
use crate::{Outcome, connection::Connection, exit::Exit, lifetime::Lifetime, terminal::Terminal};

#[derive(Args)]
pub(crate) struct RotateArgs {
    /// The token: its id, or the beginning or the end of it.
    id: String,
    /// How long the old one works beside the new one, such as 30m or 2d; at most 7d. Without it, an hour; 0m ends it at once.
    #[arg(long, value_name = "TIME")]
    overlap: Option<Lifetime>,
    /// How long the new one works. Without it, as long as the old one was meant to.
    #[arg(long, value_name = "TIME")]
    expires: Option<Lifetime>,
}

pub(super) async fn run(args: &RotateArgs, daemon: &Client, connection: &Connection, terminal: &Terminal) -> Outcome {
    let old = find(daemon, &args.id).await?.id;
    let how = RotateToken {
        overlap_seconds: args.overlap.map(Lifetime::seconds),
        lifetime_seconds: args.expires.map(Lifetime::seconds),
    };
    let minted = daemon.rotate_token(&old, &how).await?;
    tell(&minted, connection, terminal);
    if !terminal.json {
        // What the daemon takes where none is given.
        let overlap = args.overlap.unwrap_or(Lifetime::AN_HOUR);
        terminal.talk(match overlap.seconds() {
            0 => "the old one works no more, and the calls that waited or ran by it have ended".to_owned(),
            _ => format!("the old one works for {overlap} more at most; `palyra tokens revoke {old}` ends it now"),
        });
    }
    Ok(Exit::Ok)
}
