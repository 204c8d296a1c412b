//! `palyra artifacts …`: files that agents kept, for people who fetch and delete them.

mod delete;
mod get;
mod list;

use clap::Subcommand;

use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum ArtifactsCommand {
    /// List the files that were kept in a scope.
    List(list::ListArgs),
    /// Fetch a file that was kept.
    Get(get::GetArgs),
    /// Delete a file that was kept, whoever keeps it.
    Delete(delete::DeleteArgs),
}

pub(crate) fn run(command: ArtifactsCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        ArtifactsCommand::List(args) => list::run(&args, daemon, terminal).await,
        ArtifactsCommand::Get(args) => get::run(&args, daemon, terminal).await,
        ArtifactsCommand::Delete(args) => delete::run(&args, daemon, terminal).await,
    })
}
