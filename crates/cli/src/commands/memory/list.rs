//! `palyra memory list`: where something is kept, and the notes of a scope.

use clap::Args;
use palyra_api::memory::{KeptScope, KeptScopes, Memories, Memory, MemoryQuery};
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    table::{self, moment},
    terminal::{BOLD, DIM, Terminal, shown_block},
};

#[derive(Args)]
pub(crate) struct ListArgs {
    /// The scope: `global`, `agent:NAME`, `user:NAME`, `workspace:NAME` or `session:ID`. Without it, all scopes are told.
    scope: Option<String>,
}

pub(super) async fn run(args: &ListArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    match &args.scope {
        None => scopes(daemon, terminal).await,
        Some(scope) => notes(scope, daemon, terminal).await,
    }
}

async fn scopes(daemon: &Client, terminal: &Terminal) -> Outcome {
    let KeptScopes { scopes } = daemon.kept_scopes().await?;
    if terminal.json {
        terminal.document("memory.scopes", KeptScopes { scopes });
        return Ok(Exit::Ok);
    }
    let row = |kept: &KeptScope| {
        let KeptScope { scope, memories, memory_bytes, artifacts, artifact_bytes } = kept;
        [
            visible(scope),
            memories.to_string(),
            memory_bytes.to_string(),
            artifacts.to_string(),
            artifact_bytes.to_string(),
        ]
    };
    let rows: Vec<[String; 5]> = scopes.iter().map(row).collect();
    table::print(["SCOPE", "NOTES", "BYTES", "ARTIFACTS", "BYTES"], &rows, terminal);
    if scopes.is_empty() {
        terminal.talk("nothing is kept yet; agents keep notes with the tool `memory.put`");
    }
    Ok(Exit::Ok)
}

async fn notes(scope: &str, daemon: &Client, terminal: &Terminal) -> Outcome {
    let told = all(scope, daemon).await?;
    if terminal.json {
        terminal.document("memory", told);
        return Ok(Exit::Ok);
    }
    told.entries.iter().for_each(|entry| note(entry, terminal));
    if told.entries.is_empty() {
        terminal.talk(format!("nothing is remembered in {}", visible(scope)));
    }
    Ok(Exit::Ok)
}

/// Every note of a scope.
async fn all(scope: &str, daemon: &Client) -> Result<Memories, Failure> {
    let mut query = MemoryQuery { scope: Some(scope.to_owned()), ..MemoryQuery::default() };
    let mut all = daemon.memories(&query).await?;
    while let Some(after) = all.next.take() {
        query.after = Some(after);
        let more = daemon.memories(&query).await?;
        all.entries.extend(more.entries);
        all.next = more.next;
    }
    Ok(all)
}

/// Prints a note, whole.
pub(super) fn note(entry: &Memory, terminal: &Terminal) {
    let Memory { id, key, title, text, tags, updated, by, .. } = entry;
    let name = [key, title].into_iter().flatten().map(|name| visible(name)).collect::<Vec<_>>().join(" · ");
    terminal.out_rows(format!("{}  {name}", terminal.paint(BOLD, id)));
    terminal.out_rows(shown_block(text));
    let tags = if tags.is_empty() {
        String::new()
    } else {
        format!(" · {}", Vec::from_iter(tags.iter().map(|tag| visible(tag))).join(", "))
    };
    terminal.out_rows(terminal.paint(DIM, &format!("    {} · by {}{tags}", moment(*updated), visible(by))));
}
