//! `palyra hook …`: what other programs run before they do something themselves.

mod claude_code;
mod install;
mod settings;

use clap::Subcommand;

use crate::{Outcome, at::At, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum HookCommand {
    /// Answer a hook of Claude Code: what it hands over comes on stdin, the decision goes to stdout. Installs itself on demand.
    ClaudeCode(claude_code::ClaudeCodeArgs),
}

pub(crate) fn run(command: &HookCommand, at: &At, terminal: &Terminal) -> Outcome {
    let HookCommand::ClaudeCode(args) = command;
    match args.wants() {
        claude_code::Wants::Answer => Ok(claude_code::answer(args, at)),
        claude_code::Wants::Print => install::print(args, at, terminal),
        claude_code::Wants::Install => install::install(args, at, terminal),
        claude_code::Wants::Uninstall => install::uninstall(args, terminal),
    }
}
