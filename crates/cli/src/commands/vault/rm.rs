//! `palyra vault rm`: removes a secret, or one version of it.

use clap::Args;
use palyra_api::vault::RemoveSecret;
use palyra_client::Client;
use palyra_types::{SecretRef, visible::visible};

use super::secret;
use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal},
};

// `--version` is a version of the secret here.
#[derive(Args)]
#[command(disable_version_flag = true)]
pub(crate) struct RmArgs {
    /// The secret: NAME, which is global, or SCOPE/NAME.
    #[arg(value_parser = secret)]
    name: SecretRef,
    /// Remove this version alone. Without it, all of them, and where the secret may go.
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

pub(super) async fn run(args: &RmArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    daemon.remove_secret(&args.name, &RemoveSecret { version: args.version }).await?;
    if terminal.json {
        let removed = serde_json::json!({ "secret": args.name, "version": args.version });
        terminal.document("vault.removed", removed);
        return Ok(Exit::Ok);
    }
    let version = args.version.map(|version| format!(", version {version}")).unwrap_or_default();
    let name = visible(&args.name.to_string());
    terminal.out(format!("{} {name}{version}", terminal.paint(GOOD, "✔ removed")));
    Ok(Exit::Ok)
}
