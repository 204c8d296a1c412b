//! `palyra vault adopt`: an owner says that the file that is there is the vault that is meant.

use clap::Args;
use palyra_api::vault::{UnlockVault, VaultStatus};
use palyra_client::Client;

use super::unlock::{PassphraseArgs, tell};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    keyboard::Keyboard,
    terminal::{Terminal, WAIT, shown},
};

#[derive(Args)]
pub(crate) struct AdoptArgs {
    /// Do not ask whether it is meant.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    with: PassphraseArgs,
}

pub(super) async fn run(args: &AdoptArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let before = daemon.vault().await?;
    if !args.yes {
        confirm(&before, terminal).await?;
    }
    let passphrase = args.with.read(&before).await?;
    tell(&daemon.adopt_vault(&UnlockVault { passphrase }).await?, terminal)
}

/// What it means: secrets and bindings that were removed since come back, and those that were added are gone.
async fn confirm(status: &VaultStatus, terminal: &Terminal) -> Result<(), Failure> {
    let unsure = |cause: &str| {
        let help = "say --yes if the file that is there is the one that is meant";
        Failure::new(Exit::Usage, "not_confirmed", "nothing was adopted", cause, help)
    };
    let mut keyboard = Keyboard::open().ok_or_else(|| unsure("nobody is there to ask"))?;
    if let Some(message) = &status.message {
        keyboard.show(&shown(message));
    }
    let warning = "! an older copy brings back secrets and bindings that were taken away since, and loses what was added; where there is no file, a new and empty vault is made";
    keyboard.show(&terminal.paint_err(WAIT, warning));
    keyboard.prompt("go on with what is there? Type `adopt`: ");
    match keyboard.line().await {
        Some(line) if line.trim() == "adopt" => Ok(()),
        _ => Err(unsure("it was not confirmed")),
    }
}
