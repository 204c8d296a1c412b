//! `palyra skills keygen`: a key to sign packages with.

use std::path::PathBuf;

use clap::Args;
use palyra_package::SecretSigningKey;
use serde::Serialize;

use super::key::{self, PasswordArgs};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{DIM, GOOD, Terminal, WAIT},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// Write the key to this new file, and its public part beside it. Without it, publisher.key in the state directory.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave the key open: whoever reads its file can sign with it.
    #[arg(long, conflicts_with = "password_file")]
    no_password: bool,
    #[command(flatten)]
    password: PasswordArgs,
}

#[derive(Serialize)]
struct Report {
    key_id: String,
    public_key: String,
    file: PathBuf,
    public_file: PathBuf,
}

pub(super) fn run(args: &KeygenArgs, terminal: &Terminal) -> Outcome {
    let file = match &args.output {
        Some(file) => file.clone(),
        None => key::default_file()?,
    };
    key::absent(&file)?;
    let password = if args.no_password { None } else { Some(args.password.new_one()?) };
    if password.is_some() {
        terminal.talk("sealing the key, which takes some seconds …");
    }
    let key = SecretSigningKey::generate(password.as_deref().map(String::as_str))
        .map_err(|error| Failure::new(Exit::Failure, "no_key", "no key was made", error.to_string(), error.advice()))?;
    let public_file = key::write(&file, &key)?;
    let public = key.public();
    if terminal.json {
        let (key_id, public_key) = (public.key_id(), public.to_string());
        terminal.document("skill.key", Report { key_id, public_key, file, public_file });
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} key {}", terminal.paint(GOOD, "✔ made"), public.key_id()));
    terminal.out(format!("  {} {}", terminal.paint(DIM, "secret"), file.display()));
    terminal.out(format!("  {} {}", terminal.paint(DIM, "public"), public_file.display()));
    if args.no_password {
        let line = "! it has no password: whoever reads the file can sign as you";
        terminal.talk(terminal.paint_err(WAIT, line));
    }
    terminal.talk("keep a copy of the secret one elsewhere, and give the public one to those who are to trust it:");
    terminal.talk(format!("  palyra skills trust PUBLISHER {}", public_file.display()));
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills keygen                               asks for a password twice
  palyra skills keygen --output acme.key             acme.key and acme.pub
  pass show acme | palyra skills keygen --password-file -";
