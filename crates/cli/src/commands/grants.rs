//! `palyra grants …`: standing approvals, and their end.

use clap::Subcommand;
use palyra_api::approval::Grant;
use palyra_client::Client;
use palyra_types::{id::ApprovalId, visible::visible};

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    terminal::{BOLD, DIM, Terminal, shown},
};

#[derive(Subcommand)]
pub(crate) enum GrantsCommand {
    /// List the approvals that cover more than one call.
    List,
    /// End one.
    End {
        /// The grant: its id, or the beginning or the end of it.
        id: String,
    },
}

pub(crate) fn run(command: GrantsCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        GrantsCommand::List => list(daemon, terminal).await,
        GrantsCommand::End { id } => end(daemon, &id, terminal).await,
    })
}

async fn list(client: &Client, terminal: &Terminal) -> Outcome {
    let grants = client.grants().await?;
    if terminal.json {
        terminal.document("grants", &grants);
        return Ok(Exit::Ok);
    }
    for grant in &grants.grants {
        let Grant { id, session, principal, tool, covers, by, until, uses } = grant;
        let (covers, principal, by) = (shown(covers), visible(principal), visible(by));
        terminal.out_rows(format!("{}  {tool}  {covers}", terminal.paint(BOLD, &id.to_string())));
        let until = until.map_or_else(|| "the machine starts anew".to_owned(), |until| until.to_string());
        let more = format!("    for {principal} in session {session} · by {by} · until {until} · used {uses} times");
        terminal.out_rows(terminal.paint(DIM, &more));
    }
    if grants.grants.is_empty() {
        terminal.talk("no approval covers more than one call");
    }
    Ok(Exit::Ok)
}

async fn end(client: &Client, text: &str, terminal: &Terminal) -> Outcome {
    let text = text.trim().to_ascii_uppercase();
    let id = match ApprovalId::parse(&text) {
        Ok(id) => id,
        Err(_) => find(client, &text).await?,
    };
    client.end_grant(id).await.map_err(|error| Failure::from(error).advised("unknown_approval", LIST))?;
    if terminal.json {
        terminal.document("grant.ended", serde_json::json!({ "id": id }));
    } else {
        terminal.out(format!("ended  {id}"));
    }
    Ok(Exit::Ok)
}

async fn find(client: &Client, text: &str) -> Result<ApprovalId, Failure> {
    let matches = |id: &ApprovalId| {
        let id = id.to_string();
        text.len() >= 4 && (id.starts_with(text) || id.ends_with(text))
    };
    let ids: Vec<ApprovalId> = client.grants().await?.grants.iter().map(|grant| grant.id).filter(matches).collect();
    match ids.as_slice() {
        [id] => Ok(*id),
        other => {
            let cause = format!("{} grants have an id that begins or ends with `{text}`", other.len());
            Err(Failure::new(Exit::Failure, "not_found", "no such grant", cause, LIST))
        }
    }
}

const LIST: &str = "`palyra grants list` shows them; at least 4 characters of an id are enough";
