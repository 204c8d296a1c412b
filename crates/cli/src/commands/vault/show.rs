//! `palyra vault show`: what is known of a secret, never its value.

use clap::Args;
use palyra_client::Client;
use palyra_types::{SecretRef, visible::visible};

use super::{
    secret,
    words::{age, end},
};
use crate::{
    Outcome,
    exit::Exit,
    terminal::{BOLD, DIM, Terminal, shown},
};

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The secret: NAME, which is global, or SCOPE/NAME.
    #[arg(value_parser = secret)]
    name: SecretRef,
}

pub(super) async fn run(args: &ShowArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let secret = daemon.secret(&args.name).await?;
    if terminal.json {
        terminal.document("vault.secret", &secret);
        return Ok(Exit::Ok);
    }
    terminal.out(terminal.paint(BOLD, &visible(&secret.secret.to_string())));
    let field = |title: &str, text: &str| {
        terminal.out_rows(format!("  {} {text}", terminal.paint(DIM, &format!("{title:<9}"))));
    };
    field("age", &age(&secret));
    field("expires", &end(&secret));
    if let Some(days) = secret.rotate_after_days {
        field("rotate", &format!("after {days} days"));
    }
    if let Some(note) = &secret.note {
        field("note", &visible(note));
    }
    for (number, version) in secret.versions.iter().enumerate() {
        let mark = if number == 0 { ", which counts" } else { "" };
        field("version", &format!("{} put {}{mark}", version.version, version.created));
    }
    if secret.bindings.is_empty() {
        field("may go", "nowhere");
    }
    for binding in &secret.bindings {
        field("may go", &format!("{} (binding {})", shown(&binding.words), binding.id));
    }
    Ok(Exit::Ok)
}
