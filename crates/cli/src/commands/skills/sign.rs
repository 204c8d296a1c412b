//! `palyra skills sign`: signs a package. The signature is one that `minisign -V` verifies.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_package::Package;
use serde::Serialize;

use super::{
    key::{self, PasswordArgs},
    words::quoted,
};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SignArgs {
    /// The package.
    #[arg(value_name = "FILE.skill")]
    file: PathBuf,
    /// The key to sign with. Without it, publisher.key in the state directory.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    password: PasswordArgs,
}

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    signature: PathBuf,
    key_id: String,
    comment: String,
}

pub(super) fn run(args: &SignArgs, terminal: &Terminal) -> Outcome {
    let (archive, package) = read(&args.file)?;
    let key_file = match &args.key {
        Some(file) => file.clone(),
        None => key::default_file()?,
    };
    let key = key::open(&key_file, &args.password)?;
    // It says what was signed, so that a signature can be told from that of another version; no time, which nobody could verify.
    let comment = format!("{} {} {}", package.manifest.id, package.manifest.version, package.digest);
    let signature = key.sign(&archive, &comment).map_err(|error| {
        let what = format!("{} is not signed", args.file.display());
        Failure::new(Exit::Failure, "not_signed", what, error.to_string(), error.advice())
    })?;
    let beside = signature_file(&args.file);
    fs::write(&beside, signature).map_err(|error| {
        let what = format!("{} cannot be written", beside.display());
        Failure::new(
            Exit::Failure,
            "unwritable",
            what,
            error.to_string(),
            "check the disk, or copy the package elsewhere",
        )
    })?;
    let (key_id, publisher) = (key.public().key_id(), package.manifest.publisher.clone());
    if terminal.json {
        let (file, signature) = (args.file.clone(), beside);
        terminal.document("skill.signature", Report { file, signature, key_id, comment });
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {}, by key {key_id}", terminal.paint(GOOD, "✔ signed"), beside.display()));
    let public = key::public_file(&key_file);
    terminal.talk("next, where it is to run:");
    terminal.talk(format!("  palyra skills trust {publisher} {}", quoted(&public.display().to_string())));
    terminal.talk(format!("  palyra skills install {}", quoted(&args.file.display().to_string())));
    Ok(Exit::Ok)
}

/// Reads the file of a package.
pub(super) fn read(file: &Path) -> Result<(Vec<u8>, Package), Failure> {
    let what = || format!("{} is no package that can be used", file.display());
    let archive = read_bounded(file).map_err(|error| {
        let help = "name a package, which `palyra skills pack` makes";
        Failure::new(Exit::Usage, "unreadable", what(), error.to_string(), help)
    })?;
    let package = Package::read(&archive)
        .map_err(|error| Failure::new(Exit::Failure, "package_invalid", what(), error.to_string(), error.advice()))?;
    Ok((archive, package))
}

/// The file of a package's signature, if none is named.
pub(super) fn signature_file(package: &Path) -> PathBuf {
    let mut name = package.as_os_str().to_owned();
    name.push(".minisig");
    name.into()
}

fn read_bounded(file: &Path) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    // One byte more than a package can have, which is refused.
    let most = u64::try_from(palyra_package::archive::MOST_ARCHIVE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    io::Read::read_to_end(&mut io::Read::take(fs::File::open(file)?, most), &mut archive)?;
    Ok(archive)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills sign hello-0.1.0.skill
  palyra skills sign hello-0.1.0.skill --key acme.key
  minisign -Vm hello-0.1.0.skill -p acme.pub         verifies it without Palyra";
