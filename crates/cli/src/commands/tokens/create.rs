//! `palyra tokens create`: mints a token.

use clap::Args;
use palyra_api::token::NewToken;
use palyra_client::Client;
use palyra_types::{Channel, WorkspaceName, WorkspaceRole};

use super::tell;
use crate::{
    Outcome, connection::Connection, exit::Exit, failure::Failure, holder::Holder, lifetime::Lifetime,
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct CreateArgs {
    /// What to call it.
    #[arg(long)]
    name: String,
    /// Whom it stands for: agent:NAME, service:NAME, or yourself as user:NAME.
    #[arg(long = "for", value_name = "PRINCIPAL")]
    holder: Holder,
    /// What it may be used for; `palyra tokens scopes` lists that. Can be given again.
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<String>,
    /// How long it works, such as 30m, 12h or 30d.
    #[arg(long, value_name = "TIME")]
    expires: Lifetime,
    /// The most that it may do, if it stands for you: owner, admin or operator. Else your own role.
    #[arg(long)]
    role: Option<WorkspaceRole>,
    /// Bind it to a channel of this name, which rules and allowlists can speak of.
    #[arg(long, value_name = "NAME")]
    channel: Option<Channel>,
    /// Bind it to this workspace. Can be given again.
    #[arg(long = "workspace", value_name = "NAME")]
    workspaces: Vec<WorkspaceName>,
    /// How many requests a minute it may make.
    #[arg(long, value_name = "N")]
    per_minute: Option<u32>,
    /// How many requests it may have under way at once.
    #[arg(long, value_name = "N")]
    concurrent: Option<u32>,
}

pub(super) async fn run(args: &CreateArgs, daemon: &Client, connection: &Connection, terminal: &Terminal) -> Outcome {
    let new = NewToken {
        name: args.name.clone(),
        principal: args.holder.to_string(),
        scopes: args.scopes.clone(),
        lifetime_seconds: args.expires.seconds(),
        role: args.role,
        channel: args.channel.clone(),
        workspaces: (!args.workspaces.is_empty()).then(|| args.workspaces.clone()),
        per_minute: args.per_minute,
        concurrent: args.concurrent,
    };
    let refused = |error| Failure::from(error).advised("bad_request", SCOPES);
    tell(&daemon.mint_token(&new).await.map_err(refused)?, connection, terminal);
    Ok(Exit::Ok)
}

/// All else that is wrong with a request is found before it is sent.
const SCOPES: &str = "`palyra tokens scopes` lists them";
