//! `palyra`, the command line of Palyra.
//!
//! Parses the command line, runs one command from [`commands`], and turns its outcome into an exit code. Data goes to stdout, talk to
//! stderr; `--json` makes the data a versioned document.

mod at;
mod commands;
mod connection;
mod exit;
mod failure;
mod follow;
mod holder;
mod keyboard;
mod lifeline;
mod lifetime;
mod outcome;
mod paired;
mod prompt;
mod question;
mod renewal;
mod report;
mod revoked;
mod rows;
mod selection;
mod short_id;
mod stop;
mod table;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{at::At, exit::Exit, failure::Failure, terminal::Terminal};

/// Lets AI agents work on this machine, under policy.
#[derive(Parser)]
#[command(name = "palyra", version, about, propagate_version = true)]
struct Cli {
    /// Print versioned JSON to stdout.
    #[arg(long, global = true)]
    json: bool,
    /// Ask the daemon of this name, with which this device was paired.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PALYRA_AT",
        hide_env = true,
        default_value = "",
        hide_default_value = true
    )]
    at: At,
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
    /// Explain what was refused or failed last: a call, or what a hook asked about.
    Why,
    /// Explain why a call or a hook was answered as it was, and what would change that.
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
    /// Become known to a daemon, with the PIN or the QR code that it shows.
    Pair(commands::pair::PairArgs),
    /// See, pair and revoke devices, and replace the authority that certifies them.
    #[command(subcommand)]
    Devices(commands::devices::DevicesCommand),
    /// See, mint, rotate and revoke what programs are let in by.
    #[command(subcommand)]
    Tokens(commands::tokens::TokensCommand),
    /// Keep secrets that agents can use and never see, and say where each may go.
    #[command(subcommand)]
    Vault(commands::vault::VaultCommand),
    /// Let coding agents ask before they use tools of their own.
    #[command(subcommand)]
    Hook(commands::hook::HookCommand),
    /// Make, sign, install and run skills: tools of your own, in WebAssembly.
    #[command(subcommand)]
    Skills(commands::skills::SkillsCommand),
    /// Let MCP clients use the tools here, and put MCP servers behind the gateway.
    #[command(subcommand)]
    Mcp(commands::mcp::McpCommand),
    /// See and delete what agents remember.
    #[command(subcommand)]
    Memory(commands::memory::MemoryCommand),
    /// See, fetch and delete the files that agents keep.
    #[command(subcommand)]
    Artifacts(commands::artifacts::ArtifactsCommand),
    /// See, pause, resume and delete what is scheduled.
    #[command(subcommand)]
    Cron(commands::cron::CronCommand),
    /// See and change who belongs here, what roles may do, and what is switched on.
    #[command(subcommand)]
    Access(commands::access::AccessCommand),
    /// Tell who this device is to the daemon.
    Whoami,
    /// Print a link that opens the console once.
    Open,
    /// Have the daemon read its configuration and policies again.
    Reload,
    /// Look at everything that Palyra needs here, and say what to do about what is missing.
    Doctor,
    /// Tell what is where in the state directory. Needs no daemon.
    Paths,
    /// See and forget what was said with agent models.
    #[command(subcommand)]
    Sessions(commands::sessions::SessionsCommand),
    /// See what was said in a run.
    #[command(subcommand)]
    Runs(commands::sessions::RunsCommand),
    /// Watch a scripted agent meet the running daemon: one allow, one ask, one deny, one spent budget.
    Demo(commands::demo::DemoArgs),
    /// See real decisions being made, and how they explain themselves. Needs no daemon.
    Tour,
    /// Tell whether the daemon of this state directory is running.
    Status(commands::status::StatusArgs),
}

fn main() -> ExitCode {
    // Before anything else: `palyra up` starts this program again as the compiler of skills, and what that compiles comes from anywhere.
    if let Some(code) = palyra_daemon::compiler_child(std::env::args_os().skip(1)) {
        return code;
    }
    let cli = Cli::parse();
    let terminal = Terminal::detect(cli.json);
    match run(cli.command, &cli.at, &terminal) {
        Ok(Exit::Ok) if Terminal::failed() => Exit::Failure.into(),
        Ok(exit) => exit.into(),
        Err(failure) => {
            report::failure(&failure, &terminal);
            failure.exit.into()
        }
    }
}

fn run(command: Command, at: &At, terminal: &Terminal) -> Outcome {
    match command {
        Command::Up(args) => commands::up::up(&args, at, terminal),
        Command::Init(args) => commands::up::init(&args, at, terminal),
        Command::Run(args) => commands::run::run(&args, at, terminal),
        Command::Call(args) => commands::call::run(&args, at, terminal),
        Command::Approvals(command) => commands::approvals::run(command, at, terminal),
        Command::Grants(command) => commands::grants::run(command, at, terminal),
        Command::Why => commands::why::why(at, terminal),
        Command::Explain(args) => commands::why::explain(&args, at, terminal),
        Command::Journal(command) => commands::journal::run(command, at, terminal),
        Command::Policy(command) => commands::policy::run(command, at, terminal),
        Command::Tools => commands::tools::tools(at, terminal),
        Command::Workspaces => commands::tools::workspaces(at, terminal),
        Command::Posture(command) => commands::posture::run(command, at, terminal),
        Command::Pair(args) => commands::pair::run(&args, at, terminal),
        Command::Devices(command) => commands::devices::run(command, at, terminal),
        Command::Tokens(command) => commands::tokens::run(command, at, terminal),
        Command::Vault(command) => commands::vault::run(command, at, terminal),
        Command::Hook(command) => commands::hook::run(&command, at, terminal),
        Command::Skills(command) => commands::skills::run(command, at, terminal),
        Command::Mcp(command) => commands::mcp::run(command, at, terminal),
        Command::Memory(command) => commands::memory::run(command, at, terminal),
        Command::Artifacts(command) => commands::artifacts::run(command, at, terminal),
        Command::Cron(command) => commands::cron::run(command, at, terminal),
        Command::Access(command) => commands::access::run(command, at, terminal),
        Command::Whoami => commands::whoami::run(at, terminal),
        Command::Open => commands::open::run(at, terminal),
        Command::Reload => commands::reload::run(at, terminal),
        Command::Doctor => commands::doctor::run(at, terminal),
        Command::Paths => commands::paths::run(at, terminal),
        Command::Sessions(command) => commands::sessions::run(command, at, terminal),
        Command::Runs(command) => commands::sessions::runs(command, at, terminal),
        Command::Demo(args) => commands::demo::run(&args, at, terminal),
        Command::Tour => commands::tour::run(terminal),
        Command::Status(args) => commands::status::run(&args, at, terminal),
    }
}

/// What every command returns.
type Outcome = Result<Exit, Failure>;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_put_together_well() {
        Cli::command().debug_assert();
    }
}
