//! `palyra vault unlock`: opens the vault.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use clap::Args;
use palyra_api::vault::{UnlockVault, VaultState, VaultStatus};
use palyra_client::Client;
use zeroize::Zeroizing;

use super::{value::passphrase, words};
use crate::{Outcome, exit::Exit, failure::Failure, terminal::Terminal};

#[derive(Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    with: PassphraseArgs,
}

/// Where a passphrase comes from.
#[derive(Args)]
pub(super) struct PassphraseArgs {
    /// Read the passphrase from this file; `-` is standard input. Without it, it is asked for, or read from standard input.
    #[arg(long, value_name = "PATH")]
    passphrase_file: Option<PathBuf>,
}

pub(super) async fn run(args: &UnlockArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let before = daemon.vault().await?;
    if before.state == VaultState::Open {
        terminal.talk("it is open already");
        return tell(&before, terminal);
    }
    let passphrase = args.with.read(&before).await?;
    tell(&daemon.unlock_vault(&UnlockVault { passphrase }).await?, terminal)
}

impl PassphraseArgs {
    /// The passphrase, if one holds the key.
    pub(super) async fn read(&self, status: &VaultStatus) -> Result<Option<Zeroizing<String>>, Failure> {
        if status.backend.as_deref() != Some("passphrase") {
            return Ok(None);
        }
        let prompt = if status.is_new { "passphrase for the new vault" } else { "passphrase of the vault" };
        match passphrase(self.passphrase_file.as_deref(), (prompt, status.is_new)).await {
            // Nobody says one, and the daemon may have a file to read it from.
            Err(failure) if failure.code == "no_passphrase" && !io::stdin().is_terminal() => Ok(None),
            given => given.map(Some),
        }
    }
}

/// Tells how the vault is now.
pub(super) fn tell(status: &VaultStatus, terminal: &Terminal) -> Outcome {
    match terminal.json {
        true => terminal.document("vault.status", status),
        false => words::tell(status, terminal),
    }
    if (status.generation, status.secrets) == (Some(1), Some(0)) {
        terminal.talk("it is a new and empty vault");
    }
    // A keyring may still be asking its user.
    Ok(if status.state == VaultState::Open { Exit::Ok } else { Exit::Failure })
}
