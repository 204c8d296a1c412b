//! `palyra policy …`: everything about policies that needs no daemon.

mod check;
mod diff;
mod explain;
mod fmt;
mod replay;
mod simulate;
mod test;

use clap::Subcommand;

use crate::{Outcome, at::At, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Load policies and tell everything that is wrong with them.
    Check(check::CheckArgs),
    /// Run policy tests from data files.
    Test(test::TestArgs),
    /// Decide one call and explain the decision. Exits 3 if it is denied, 0 if it is allowed or would ask.
    Explain(Box<explain::ExplainArgs>),
    /// Decide many requests, and show what candidate policies would change.
    Simulate(simulate::SimulateArgs),
    /// Compare two policy sets over a corpus of requests, newly allowed first.
    Diff(diff::DiffArgs),
    /// Try candidate policies on what a daemon has decided before, newly allowed first. Needs a daemon.
    Replay(replay::ReplayArgs),
    /// Format policy files in place.
    Fmt(fmt::FmtArgs),
}

pub(crate) fn run(command: PolicyCommand, at: &At, terminal: &Terminal) -> Outcome {
    match command {
        PolicyCommand::Check(args) => check::run(&args, terminal),
        PolicyCommand::Test(args) => test::run(&args, terminal),
        PolicyCommand::Explain(args) => explain::run(&args, terminal),
        PolicyCommand::Simulate(args) => simulate::run(&args, terminal),
        PolicyCommand::Diff(args) => diff::run(&args, terminal),
        PolicyCommand::Replay(args) => replay::run(&args, at, terminal),
        PolicyCommand::Fmt(args) => fmt::run(&args, terminal),
    }
}
