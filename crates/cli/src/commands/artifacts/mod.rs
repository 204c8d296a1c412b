//! `palyra artifacts …`: files that agents kept, for people who fetch them.

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
}

pub(crate) fn run(command: ArtifactsCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        ArtifactsCommand::List(args) => list::run(&args, daemon, terminal).await,
        ArtifactsCommand::Get(args) => get::run(&args, daemon, terminal).await,
    })
}
