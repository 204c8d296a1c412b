//! `palyra skills new`: a skill to start from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_package::PackageId;
use serde::Serialize;

use super::template::{self, Language, NewFile};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NewArgs {
    /// What to call it: PUBLISHER/NAME, such as acme/word-count.
    id: PackageId,
    /// The language that it is written in: rust, c, js or python.
    #[arg(long = "lang", value_name = "LANGUAGE", default_value = "rust")]
    language: Language,
    /// Where to make it: a new or empty directory. Without it, one named NAME.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    id: PackageId,
    language: String,
    directory: PathBuf,
    files: Vec<String>,
}

pub(super) fn run(args: &NewArgs, terminal: &Terminal) -> Outcome {
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from(args.id.name()));
    empty(&directory)?;
    let files = template::files(args.language, &args.id);
    for file in &files {
        write(&directory, file).map_err(|error| unwritable(&directory.join(&file.path), &error))?;
    }
    let shown = directory.display();
    if terminal.json {
        let files = files.into_iter().map(|file| file.path).collect();
        let language = args.language.to_string();
        terminal.document("skill.new", Report { id: args.id.clone(), language, directory, files });
        return Ok(Exit::Ok);
    }
    terminal.out(format!(
        "{} {} in {shown}, in {}: {} files",
        terminal.paint(GOOD, "✔ made"),
        args.id,
        args.language,
        files.len()
    ));
    terminal.talk("next:");
    terminal.talk(format!("  cd {shown}"));
    if let Some(needs) = args.language.needs() {
        terminal.talk(format!("  {needs}"));
    }
    terminal.talk("  palyra skills test    builds it, and runs the cases in tests/");
    terminal.talk(format!("  palyra skills pack    makes {}-0.1.0.skill", args.id.name()));
    Ok(Exit::Ok)
}

/// Refuses a place where something is already.
fn empty(directory: &Path) -> Result<(), Failure> {
    let refused = |cause: &str| {
        let what = format!("no skill is made in {}", directory.display());
        Failure::new(Exit::Usage, "not_empty", what, cause, "name a new directory: --directory DIR")
    };
    match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(refused("there is something in it already"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(&error.to_string())),
    }
}

fn write(directory: &Path, file: &NewFile) -> io::Result<()> {
    let path = directory.join(&file.path);
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let mut new = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    io::Write::write_all(&mut new, file.content.as_bytes())
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written", path.display());
    Failure::new(Exit::Failure, "unwritable", what, error.to_string(), "check the disk, or name another --directory")
}

const EXAMPLES: &str = "\
Examples:
  palyra skills new acme/hello                         in Rust, in ./hello
  palyra skills new acme/hello --lang js --directory skills/hello";
