//! `palyra tokens …`: what programs are let in by.

mod create;
mod list;
mod revoke;
mod rotate;
mod scopes;

use clap::Subcommand;
use palyra_api::token::{MintedToken, Token};
use palyra_client::Client;
use palyra_types::{WorkspaceName, visible::visible};

use crate::{
    Outcome,
    at::At,
    connection::Connection,
    failure::Failure,
    short_id::{Sort, meant},
    terminal::{DIM, Terminal, WAIT},
};

#[derive(Subcommand)]
pub(crate) enum TokensCommand {
    /// Mint a token. Its secret is printed to stdout, once.
    Create(create::CreateArgs),
    /// List the tokens that work.
    List(list::ListArgs),
    /// Tell what tokens can be used for.
    Scopes,
    /// Have a token followed by a new one. The new secret is printed to stdout, once.
    Rotate(rotate::RotateArgs),
    /// Revoke a token, at once.
    Revoke(revoke::RevokeArgs),
}

pub(crate) fn run(command: TokensCommand, at: &At, terminal: &Terminal) -> Outcome {
    let connection = Connection::find(at, terminal)?;
    connection.run(async |daemon| match command {
        TokensCommand::Create(args) => create::run(&args, daemon, &connection, terminal).await,
        TokensCommand::List(args) => list::run(&args, daemon, terminal).await,
        TokensCommand::Scopes => scopes::run(daemon, terminal).await,
        TokensCommand::Rotate(args) => rotate::run(&args, daemon, &connection, terminal).await,
        TokensCommand::Revoke(args) => revoke::run(&args, daemon, terminal).await,
    })
}

/// The token that is meant: by its id, or by the beginning or the end of it.
async fn find(daemon: &Client, text: &str) -> Result<Token, Failure> {
    let tokens = daemon.tokens().await?.tokens;
    meant(&tokens, |token| token.id.as_str(), text, &TOKEN).cloned()
}

const TOKEN: Sort = Sort {
    one: "token",
    many: "tokens",
    code: "unknown_token",
    help: "`palyra tokens list --all` shows them; at least 4 characters of an id are enough",
};

/// Tells a token that was minted: the secret to stdout, alone, and everything else to stderr.
fn tell(minted: &MintedToken, connection: &Connection, terminal: &Terminal) {
    if terminal.json {
        terminal.document("token.minted", minted);
        return;
    }
    let MintedToken { token, secret } = minted;
    terminal.out(visible(secret));
    let Token { id, name, principal, scopes, expires, per_minute, concurrent, workspaces, channel, .. } = token;
    terminal.talk_rows(format!("token {id} ({}) for {}", visible(name), visible(principal)));
    let scopes: Vec<String> = scopes.iter().map(|scope| visible(scope)).collect();
    terminal.talk_rows(format!("  may be used for {}", scopes.join(", ")));
    if let Some(channel) = channel {
        terminal.talk_rows(format!("  by the channel {channel}"));
    }
    if let Some(workspaces) = workspaces {
        let names: Vec<&str> = workspaces.iter().map(WorkspaceName::as_str).collect();
        terminal.talk_rows(format!("  in the workspaces {}", names.join(", ")));
    }
    terminal.talk_rows(format!("  until {expires}, {per_minute} requests a minute, {concurrent} at once"));
    terminal.talk(
        terminal
            .paint_err(WAIT, "! this is the only time that it is shown; keep it where only its program can read it"),
    );
    // SECURITY: what is printed here ends up in histories and screenshots, so it names a variable and not the secret.
    match connection.local() {
        Ok(local) => {
            terminal.talk("try it, with the secret in TOKEN:");
            terminal.talk(format!("  curl -H \"Authorization: Bearer $TOKEN\" {local}/api/v1/identity"));
        }
        Err(_) => {
            terminal.talk(terminal.paint_err(DIM, "it works on the daemon's own machine, at its listener for programs"))
        }
    }
}
