//! `palyra artifacts list`: the files that were kept, in one scope or in all.

use clap::Args;
use palyra_api::memory::{Artifact, ArtifactQuery, Artifacts};
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    table::{self, moment},
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct ListArgs {
    /// The scope: `global`, `agent:NAME`, `user:NAME`, `workspace:NAME` or `session:ID`. Without it, all scopes are told.
    scope: Option<String>,
}

pub(super) async fn run(args: &ListArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let scopes = match &args.scope {
        Some(scope) => vec![scope.clone()],
        None => {
            let kept = daemon.kept_scopes().await?.scopes.into_iter();
            kept.filter(|kept| kept.artifacts > 0).map(|kept| kept.scope).collect()
        }
    };
    let mut found = Vec::new();
    for scope in scopes {
        found.push(all(scope, daemon).await?);
    }
    if terminal.json {
        terminal.document("artifacts", &found);
        return Ok(Exit::Ok);
    }
    let row = |scope: &str, one: &Artifact| {
        let Artifact { id, name, media_type, size, created, by, .. } = one;
        [
            id.clone(),
            visible(scope),
            visible(name),
            visible(media_type),
            size.to_string(),
            moment(*created),
            visible(by),
        ]
    };
    let rows: Vec<[String; 7]> =
        found.iter().flat_map(|kept| kept.artifacts.iter().map(|one| row(&kept.scope, one))).collect();
    table::print(["ID", "SCOPE", "NAME", "TYPE", "BYTES", "KEPT", "BY"], &rows, terminal);
    if rows.is_empty() {
        terminal.talk("no files are kept; agents keep them with the tool `artifact.put`");
    }
    Ok(Exit::Ok)
}

/// Every file of a scope.
async fn all(scope: String, daemon: &Client) -> Result<Artifacts, Failure> {
    let mut query = ArtifactQuery { scope: Some(scope), ..ArtifactQuery::default() };
    let mut all = daemon.artifacts(&query).await?;
    while let Some(after) = all.next.take() {
        query.after = Some(after);
        let more = daemon.artifacts(&query).await?;
        all.artifacts.extend(more.artifacts);
        all.next = more.next;
    }
    Ok(all)
}
