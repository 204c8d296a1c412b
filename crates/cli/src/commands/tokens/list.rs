//! `palyra tokens list`: the tokens that work, and on demand those that do not.

use clap::Args;
use palyra_api::token::{Token, TokenState, Tokens};
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    table::{self, moment, moment_or},
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Also those that expired, were revoked or taken over from.
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(args: &ListArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let Tokens { tokens } = daemon.tokens().await?;
    let there = tokens.len();
    let tokens: Vec<Token> = tokens.into_iter().filter(|token| args.all || works(token.state)).collect();
    if terminal.json {
        terminal.document("tokens", Tokens { tokens });
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 8]> = tokens.iter().map(row).collect();
    table::print(["ID", "NAME", "FOR", "STATE", "EXPIRES", "LAST USED", "CHANNEL", "SCOPES"], &rows, terminal);
    match there - tokens.len() {
        0 if tokens.is_empty() => terminal.talk("there are no tokens; `palyra tokens create` mints one"),
        0 => {}
        hidden => terminal.talk(format!("{hidden} that do not work any more; `palyra tokens list --all` shows them")),
    }
    Ok(Exit::Ok)
}

const fn works(state: TokenState) -> bool {
    match state {
        TokenState::Active | TokenState::Overlapping => true,
        TokenState::Superseded | TokenState::Expired | TokenState::Revoked => false,
    }
}

fn row(token: &Token) -> [String; 8] {
    let scopes: Vec<String> = token.scopes.iter().map(|scope| visible(scope)).collect();
    [
        token.id.to_string(),
        visible(&token.name),
        visible(&token.principal),
        state(token.state).to_owned(),
        moment(token.works_until),
        moment_or(token.last_used, "never"),
        token.channel.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        scopes.join(" "),
    ]
}

const fn state(state: TokenState) -> &'static str {
    match state {
        TokenState::Active => "active",
        TokenState::Overlapping => "overlapping",
        TokenState::Superseded => "superseded",
        TokenState::Expired => "expired",
        TokenState::Revoked => "revoked",
    }
}
