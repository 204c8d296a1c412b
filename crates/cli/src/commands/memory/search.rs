//! `palyra memory search`: notes by their words, in one scope or in all.

use clap::Args;
use palyra_api::memory::{Memories, MemoryQuery};
use palyra_client::Client;
use palyra_types::visible::visible;

use super::list::note;
use crate::{
    Outcome,
    exit::Exit,
    terminal::{DIM, Terminal},
};

#[derive(Args)]
pub(crate) struct SearchArgs {
    /// What to look for. Nothing is syntax.
    #[arg(required = true)]
    words: Vec<String>,
    /// Look here alone: `global`, `agent:NAME`, `user:NAME`, `workspace:NAME` or `session:ID`.
    #[arg(long = "in", value_name = "SCOPE")]
    scope: Option<String>,
}

pub(super) async fn run(args: &SearchArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let scopes = match &args.scope {
        Some(scope) => vec![scope.clone()],
        None => daemon.kept_scopes().await?.scopes.into_iter().map(|kept| kept.scope).collect(),
    };
    let mut found: Vec<Memories> = Vec::new();
    for scope in scopes {
        let query = MemoryQuery { scope: Some(scope), query: Some(args.words.join(" ")), ..MemoryQuery::default() };
        found.push(daemon.memories(&query).await?);
    }
    found.retain(|one| !one.entries.is_empty());
    if terminal.json {
        terminal.document("memory.found", &found);
        return Ok(Exit::Ok);
    }
    for Memories { scope, entries, .. } in &found {
        terminal.out_rows(terminal.paint(DIM, &format!("in {}", visible(scope))));
        entries.iter().for_each(|entry| note(entry, terminal));
    }
    if found.is_empty() {
        terminal.talk("nothing that is remembered has these words");
    }
    Ok(Exit::Ok)
}
