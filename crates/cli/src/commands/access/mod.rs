//! `palyra access …`: who belongs here, what each role may do, and what is switched on.

mod flags;
mod members;
mod roles;

use clap::Subcommand;

use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum AccessCommand {
    /// See, invite, change and remove members.
    Members {
        #[command(subcommand)]
        command: Option<members::MembersCommand>,
    },
    /// Tell what each role may do unless a policy says otherwise.
    Roles,
    /// See and switch parts of the daemon.
    Flags {
        #[command(subcommand)]
        command: Option<flags::FlagsCommand>,
    },
}

pub(crate) fn run(command: AccessCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        AccessCommand::Members { command } => members::run(command.unwrap_or_default(), daemon, terminal).await,
        AccessCommand::Roles => roles::run(daemon, terminal).await,
        AccessCommand::Flags { command } => flags::run(command.unwrap_or_default(), daemon, terminal).await,
    })
}
