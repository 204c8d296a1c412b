//! `palyra vault export`: a backup that age opens.
//!
//! Guarantees: nothing is overwritten, and what is written only its owner can read. A secret key of age is never sent.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args};
use palyra_api::vault::ExportVault;
use palyra_client::Client;

use super::value::passphrase;
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("whoever").args(["recipients", "passphrase"]).required(true)))]
pub(crate) struct ExportArgs {
    /// Whoever has the key that this belongs to can open it: age1…. Can be given again.
    #[arg(long = "recipient", value_name = "AGE1")]
    recipients: Vec<String>,
    /// Whoever knows a passphrase can open it. It is asked for twice, or is a line of standard input.
    #[arg(long)]
    passphrase: bool,
    /// Write it to this new file. Without it, to standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportArgs {
    /// Refuses what makes no sense before anybody is asked anything.
    // SECURITY: a secret key that is mistaken for a public one goes nowhere from here, and is not repeated.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.recipients.iter().all(|one| one.starts_with("age1")) {
            return Ok(());
        }
        let cause = "what was given as --recipient does not begin with `age1`";
        let help =
            "`age-keygen` prints the public key; if it was a secret key, make another one: it was on a command line";
        Err(Failure::new(Exit::Usage, "bad_recipient", "nobody could open the backup", cause, help))
    }
}

pub(super) async fn run(args: &ExportArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    if let Some(path) = &args.output
        && std::fs::symlink_metadata(path).is_ok()
    {
        return Err(unwritable(path, "there is a file already", "name a new file"));
    }
    let passphrase = match args.passphrase {
        true => Some(passphrase(None, ("passphrase of the backup", true)).await?),
        false => None,
    };
    let backup = daemon.export_vault(&ExportVault { recipients: args.recipients.clone(), passphrase }).await?;
    match &args.output {
        Some(path) => {
            write_new(path, &backup).map_err(|error| unwritable(path, &error.to_string(), "check the disk"))?;
            match terminal.json {
                true => terminal.document("vault.export", serde_json::json!({ "file": path })),
                false => terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ written"), path.display())),
            }
        }
        None if terminal.json => terminal.document("vault.export", serde_json::json!({ "backup": backup })),
        None => terminal.out(backup.trim_end()),
    }
    if !io::stdout().is_terminal() || args.output.is_some() {
        terminal.talk("keep it apart from this machine, and try it once: `palyra vault import` brings it back");
    }
    Ok(Exit::Ok)
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all())
}

fn unwritable(path: &Path, cause: &str, help: &str) -> Failure {
    Failure::new(Exit::Failure, "unwritable", format!("{} cannot be written", path.display()), cause, help)
}

const EXAMPLES: &str = "\
Examples:
  palyra vault export --recipient age1… --output vault.age
  palyra vault export --passphrase > vault.age
  age -d -i key.txt vault.age | palyra vault import --plain -";
