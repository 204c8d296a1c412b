//! `palyra`, the command line of Palyra.
//!
//! Parses the command line, runs one command from [`commands`], and turns its outcome into an exit code. Data goes to stdout, talk to
//! stderr; `--json` makes the data a versioned document.

mod commands;
mod connection;
mod exit;
mod failure;
mod follow;
mod keyboard;
mod lifeline;
mod outcome;
mod prompt;
mod question;
mod report;
mod rows;
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
    /// Start the daemon here, with everything in it. Makes what is missing.
    Up(commands::up::UpArgs),
    /// Make the state directory, and start nothing.
    Init(commands::up::UpArgs),
    /// Run a program here, governed like any call. Its exit code is passed through; 125 if Palyra refused.
    Run(commands::run::RunArgs),
    /// Propose a call and print what came of it, whole.
    Call(commands::call::CallArgs),
    /// See and answer the questions that wait for a person.
    #[command(subcommand)]
    Approvals(commands::approvals::ApprovalsCommand),
    /// See and end approvals that cover more than one call.
    #[command(subcommand)]
    Grants(commands::grants::GrantsCommand),
    /// Explain the call that was refused last.
    Why,
    /// Explain why a call was decided as it was, and what would change that.
    Explain(commands::why::ExplainArgs),
    /// See, verify, export and prove what happened.
    #[command(subcommand)]
    Journal(commands::journal::JournalCommand),
    /// Check, test, explain, simulate, compare, replay and format policies. Only replay needs a daemon.
    #[command(subcommand)]
    Policy(commands::policy::PolicyCommand),
    /// List the tools.
    Tools,
    /// List the workspaces.
    Workspaces,
    /// See and set how freely tools may be used.
    #[command(subcommand)]
    Posture(commands::posture::PostureCommand),
    /// Print a link that opens the console once.
    Open,
    /// Have the daemon read its configuration and policies again.
    Reload,
    /// Look at everything that Palyra needs here, and say what to do about what is missing.
    Doctor,
    /// Tell what is where in the state directory. Needs no daemon.
    Paths,
    /// Watch a scripted agent meet the running daemon: one allow, one ask, one deny, one spent budget.
    Demo(commands::demo::DemoArgs),
    /// See real decisions being made, and how they explain themselves. Needs no daemon.
    Tour,
    /// Tell whether the daemon of this state directory is running.
    Status(commands::status::StatusArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let terminal = Terminal::detect(cli.json);
    let outcome = match cli.command {
        Command::Up(args) => commands::up::up(&args, &terminal),
        Command::Init(args) => commands::up::init(&args, &terminal),
        Command::Run(args) => commands::run::run(&args, &terminal),
        Command::Call(args) => commands::call::run(&args, &terminal),
        Command::Approvals(command) => commands::approvals::run(command, &terminal),
        Command::Grants(command) => commands::grants::run(command, &terminal),
        Command::Why => commands::why::why(&terminal),
        Command::Explain(args) => commands::why::explain(&args, &terminal),
        Command::Journal(command) => commands::journal::run(command, &terminal),
        Command::Policy(command) => commands::policy::run(command, &terminal),
        Command::Tools => commands::tools::tools(&terminal),
        Command::Workspaces => commands::tools::workspaces(&terminal),
        Command::Posture(command) => commands::posture::run(command, &terminal),
        Command::Open => commands::open::run(&terminal),
        Command::Reload => commands::reload::run(&terminal),
        Command::Doctor => commands::doctor::run(&terminal),
        Command::Paths => commands::paths::run(&terminal),
        Command::Demo(args) => commands::demo::run(&args, &terminal),
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
