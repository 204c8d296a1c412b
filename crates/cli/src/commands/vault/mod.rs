//! `palyra vault …`: secrets that agents can use and never see.
//!
//! Guarantees: a value comes from standard input, a file or a prompt, never from the command line, and is printed nowhere.

mod adopt;
mod bind;
mod export;
mod import;
mod list;
mod put;
mod rm;
mod rotate;
mod show;
mod status;
mod unbind;
mod unlock;
mod value;
mod words;

use clap::Subcommand;
use palyra_types::{SecretRef, vault::SecretRefError};

pub(crate) use self::value::passphrase;
use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum VaultCommand {
    /// Tell whether the vault is open, who holds its key, and why not otherwise.
    Status,
    /// Put a value under a name: the first one, or the next version. The value comes from stdin, a file or a prompt.
    Put(put::PutArgs),
    /// List the secrets, and where each may go.
    List,
    /// Tell what is known of a secret: its versions and where it may go, never its value.
    Show(show::ShowArgs),
    /// Remove a secret with its bindings, or one version of it.
    Rm(rm::RmArgs),
    /// Let a secret go to a host, in a place of a request that is named.
    Bind(bind::BindArgs),
    /// Take a binding away. Calls that wait or run hear of it.
    Unbind(unbind::UnbindArgs),
    /// Ask for another value of a secret; without a name, seal the whole vault under a new key.
    Rotate(rotate::RotateArgs),
    /// Write a backup that age opens: for keys of age, or under a passphrase.
    Export(export::ExportArgs),
    /// Bring back what is in a backup. It is decrypted here, not by the daemon.
    Import(import::ImportArgs),
    /// Open the vault with its passphrase, or have the keyring asked again.
    Unlock(unlock::UnlockArgs),
    /// Use the file that is there although the journal knows the vault otherwise. Only an owner can say so.
    Adopt(adopt::AdoptArgs),
}

pub(crate) fn run(command: VaultCommand, at: &At, terminal: &Terminal) -> Outcome {
    match &command {
        VaultCommand::Put(args) => args.check()?,
        VaultCommand::Rotate(args) => args.check()?,
        VaultCommand::Export(args) => args.check()?,
        VaultCommand::Import(args) => args.check()?,
        _ => {}
    }
    meet(at, terminal, async |daemon| match command {
        VaultCommand::Status => status::run(daemon, terminal).await,
        VaultCommand::Put(args) => put::run(&args, daemon, terminal).await,
        VaultCommand::List => list::run(daemon, terminal).await,
        VaultCommand::Show(args) => show::run(&args, daemon, terminal).await,
        VaultCommand::Rm(args) => rm::run(&args, daemon, terminal).await,
        VaultCommand::Bind(args) => bind::run(&args, daemon, terminal).await,
        VaultCommand::Unbind(args) => unbind::run(&args, daemon, terminal).await,
        VaultCommand::Rotate(args) => rotate::run(&args, daemon, terminal).await,
        VaultCommand::Export(args) => export::run(&args, daemon, terminal).await,
        VaultCommand::Import(args) => import::run(&args, daemon, terminal).await,
        VaultCommand::Unlock(args) => unlock::run(&args, daemon, terminal).await,
        VaultCommand::Adopt(args) => adopt::run(&args, daemon, terminal).await,
    })
}

/// A secret as a person writes it: a bare name is global.
fn secret(text: &str) -> Result<SecretRef, SecretRefError> {
    SecretRef::parse_or_global(text)
}

const EXAMPLES: &str = "\
Examples:
  palyra vault put github                          asks for the value twice, without showing it
  pass show github | palyra vault put github --rotate-after 90d
  palyra vault bind github --host api.github.com   in its Authorization header and nowhere else
  palyra run --secret GH_TOKEN=github --host api.github.com:443 -- gh api user";
