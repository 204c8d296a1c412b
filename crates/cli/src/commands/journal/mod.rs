//! `palyra journal …`: what happened, and the proof that it did.

mod export;
mod prove;
mod show;
mod tail;
mod verify;

use clap::Subcommand;

use crate::{Outcome, at::At, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum JournalCommand {
    /// List the last records.
    Tail(tail::TailArgs),
    /// Show a record or a call, whole.
    Show(show::ShowArgs),
    /// Verify a journal, or an exported bundle. Needs no daemon. Exits 7 and names the first bad record if it is not what was written.
    Verify(verify::VerifyArgs),
    /// Write a bundle that anybody can verify.
    Export(export::ExportArgs),
    /// Prove that a record is in the journal. The proof is checked before it is printed.
    Prove(prove::ProveArgs),
}

pub(crate) fn run(command: JournalCommand, at: &At, terminal: &Terminal) -> Outcome {
    match command {
        JournalCommand::Tail(args) => tail::run(&args, at, terminal),
        JournalCommand::Show(args) => show::run(&args, at, terminal),
        JournalCommand::Verify(args) => verify::run(&args, at, terminal),
        JournalCommand::Export(args) => export::run(&args, at, terminal),
        JournalCommand::Prove(args) => prove::run(&args, at, terminal),
    }
}
