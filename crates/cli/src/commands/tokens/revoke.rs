//! `palyra tokens revoke`: a token stops working, at once.

use clap::Args;
use palyra_api::token::RevokeToken;
use palyra_client::Client;

use super::find;
use crate::{Outcome, exit::Exit, revoked, terminal::Terminal};

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// The token: its id, or the beginning or the end of it.
    id: String,
    /// Revoke its whole line: those that it took over from, and those that took over from it.
    #[arg(long)]
    family: bool,
}

pub(super) async fn run(args: &RevokeArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let id = find(daemon, &args.id).await?.id;
    revoked::tell(&daemon.revoke_token(&id, &RevokeToken { family: args.family }).await?, terminal);
    Ok(Exit::Ok)
}
