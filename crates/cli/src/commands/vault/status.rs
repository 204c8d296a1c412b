//! `palyra vault status`: whether the vault is open. Exits 1 if it is not.

use palyra_api::vault::VaultState;
use palyra_client::Client;

use super::words;
use crate::{Outcome, exit::Exit, terminal::Terminal};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let status = daemon.vault().await?;
    let exit = if status.state == VaultState::Open { Exit::Ok } else { Exit::Failure };
    match terminal.json {
        true => terminal.document("vault.status", &status),
        false => words::tell(&status, terminal),
    }
    Ok(exit)
}
