//! `palyra memory …`: what agents remember, for people who look after it.
//!
//! Guarantees: what agents wrote is shown with everything hidden made visible.

mod forget;
mod list;
mod search;

use clap::Subcommand;

use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum MemoryCommand {
    /// List where something is kept, or the notes of one scope.
    List(list::ListArgs),
    /// Find notes by their words.
    Search(search::SearchArgs),
    /// Forget a note.
    Delete(forget::DeleteArgs),
    /// Forget every note of a scope.
    Purge(forget::PurgeArgs),
}

pub(crate) fn run(command: MemoryCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        MemoryCommand::List(args) => list::run(&args, daemon, terminal).await,
        MemoryCommand::Search(args) => search::run(&args, daemon, terminal).await,
        MemoryCommand::Delete(args) => forget::delete(&args, daemon, terminal).await,
        MemoryCommand::Purge(args) => forget::purge(&args, daemon, terminal).await,
    })
}

const EXAMPLES: &str = "\
Examples:
  palyra memory list                       where something is kept, and how much
  palyra memory list agent:local           the notes of an agent
  palyra memory search release notes       in every scope
  palyra memory purge agent:local          forgets all that the agent remembers";
