//! `palyra`, the command line of Palyra.
//!
//! Parses the command line, runs one command from [`commands`], and turns its outcome into an exit code. Data goes to stdout, talk to
//! stderr; `--json` makes the data a versioned document.

mod commands;
mod exit;
mod failure;
mod report;
mod selection;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{exit::Exit, failure::Failure, terminal::Terminal};

/// Lets AI agents work on this machine, under policy.
#[derive(Parser)]
#[command(name = "palyra", version, about, propagate_version = true)]
struct Cli {
    /// Print versioned JSON to stdout.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check, test, explain, simulate, compare and format policies. Needs no daemon.
    #[command(subcommand)]
    Policy(commands::policy::PolicyCommand),
    /// See real decisions being made, and how they explain themselves.
    Tour,
    /// Tell whether a daemon is running here.
    Status(commands::status::StatusArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let terminal = Terminal::detect(cli.json);
    let outcome = match cli.command {
        Command::Policy(command) => commands::policy::run(command, &terminal),
        Command::Tour => commands::tour::run(&terminal),
        Command::Status(args) => commands::status::run(&args, &terminal),
    };
    match outcome {
        Ok(Exit::Ok) if Terminal::failed() => Exit::Failure.into(),
        Ok(exit) => exit.into(),
        Err(failure) => {
            report::failure(&failure, &terminal);
            failure.exit.into()
        }
    }
}

/// What every command returns.
type Outcome = Result<Exit, Failure>;
