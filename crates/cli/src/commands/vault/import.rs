//! `palyra vault import`: brings back what is in a backup.
//!
//! Guarantees: a backup is decrypted here, so that neither a secret key nor the passphrase of it reaches the daemon.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_api::vault::ImportedVault;
use palyra_client::Client;
use palyra_types::visible::visible;
use palyra_vault::backup::{Backup, BackupError, Opening};
use zeroize::Zeroizing;

use super::value::passphrase;
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The backup; `-` is standard input.
    file: PathBuf,
    /// The file with the secret key of age that opens it.
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase")]
    identity: Option<PathBuf>,
    /// A passphrase opens it. It is asked for, or is a line of standard input.
    #[arg(long)]
    passphrase: bool,
    /// It is decrypted already, by age itself.
    #[arg(long, conflicts_with_all = ["identity", "passphrase"])]
    plain: bool,
}

impl ImportArgs {
    /// Refuses what makes no sense before anybody is asked anything.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let by_stdin = self.file == Path::new("-") && !io::stdin().is_terminal();
        match (self.plain || self.identity.is_some(), self.passphrase) {
            (false, false) => Err(unsaid()),
            (_, true) if by_stdin => Err(taken()),
            _ => Ok(()),
        }
    }
}

pub(super) async fn run(args: &ImportArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let bytes = read(&args.file)?;
    let document = match (&args.identity, args.plain) {
        (_, true) => bytes,
        (Some(path), _) => open(&bytes, &Opening::Identities(text(&read(path)?, path)?))?,
        (None, false) => {
            let words = passphrase(None, ("passphrase of the backup", false)).await?;
            open(&bytes, &Opening::Passphrase(words))?
        }
    };
    // What is no backup is told here, where nothing was sent yet.
    let backup = Backup::read(&document).map_err(|error| unusable(&error))?;
    drop(document);
    // SECURITY: whoever has the public key can write a backup. It must not lead secrets elsewhere that it does not hold.
    if let Some(terms) =
        backup.bindings.iter().find(|terms| backup.secrets.iter().all(|new| new.secret != terms.secret))
    {
        let cause = format!("it binds {} and does not hold it", terms.secret);
        let help = "a backup holds every secret that it binds; this one was not written by `palyra vault export`";
        return Err(Failure::new(Exit::Failure, "bad_backup", "nothing was brought back", cause, help));
    }
    for terms in &backup.bindings {
        terminal.talk(format!("{} may go {}", visible(&terms.secret.to_string()), shown(&terms.words())));
    }
    let mut imported = ImportedVault { secrets: Vec::new(), bindings: 0, left_out: 0 };
    for portion in backup.portions(PORTION).map_err(|error| unusable(&error))? {
        let one = daemon.import_vault(portion).await?;
        imported.secrets.extend(one.secrets);
        imported.bindings += one.bindings;
        imported.left_out += one.left_out;
    }
    if terminal.json {
        terminal.document("vault.import", &imported);
        return Ok(Exit::Ok);
    }
    let ImportedVault { secrets, bindings, left_out } = imported;
    for kept in &secrets {
        let name = visible(&kept.secret.to_string());
        terminal.out(format!("{} {name}, version {}", terminal.paint(GOOD, "✔ kept"), kept.version));
    }
    let noun = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let (secrets, bindings) = (noun(secrets.len(), "secret"), noun(usize::try_from(bindings).unwrap_or(0), "binding"));
    terminal
        .talk(format!("{secrets} and {bindings}; {left_out} left out because they are there already or have expired"));
    Ok(Exit::Ok)
}

fn open(backup: &[u8], opening: &Opening) -> Result<Zeroizing<Vec<u8>>, Failure> {
    Backup::decrypt(backup, opening).map_err(|error| unusable(&error))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let unreadable = |error: io::Error| {
        let what = format!("{} cannot be read", path.display());
        Failure::new(Exit::Usage, "unreadable", what, error.to_string(), "name a file that can be read")
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(ROOM));
    match path == Path::new("-") {
        true => io::stdin().lock().take(LARGEST).read_to_end(&mut bytes).map_err(unreadable)?,
        false => File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes)).map_err(unreadable)?,
    };
    Ok(bytes)
}

fn text(bytes: &[u8], path: &Path) -> Result<Zeroizing<String>, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|_| {
        let what = format!("{} cannot be used", path.display());
        Failure::new(Exit::Usage, "unreadable", what, "it is not UTF-8", BackupError::Identity.advice())
    });
    text.map(|text| Zeroizing::new(text.to_owned()))
}

fn unusable(error: &BackupError) -> Failure {
    Failure::new(Exit::Failure, "bad_backup", "nothing was brought back", error.to_string(), error.advice())
}

fn unsaid() -> Failure {
    let cause = "it is not said what opens the backup";
    let help = "give --identity FILE or --passphrase; or --plain for what age has decrypted";
    Failure::new(Exit::Usage, "usage", "nothing was brought back", cause, help)
}

fn taken() -> Failure {
    let cause = "the backup itself comes by standard input, so the passphrase cannot";
    Failure::new(Exit::Usage, "usage", "nothing was brought back", cause, "name the file of the backup")
}

const ROOM: usize = 1 << 20;

/// How much a daemon is sent at a time.
const PORTION: usize = 8 << 20;

/// Longer than a backup is.
const LARGEST: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  palyra vault import vault.age --identity key.txt
  palyra vault import vault.age --passphrase
  age -d -i key.txt vault.age | palyra vault import --plain -";
