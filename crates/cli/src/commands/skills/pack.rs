//! `palyra skills pack`: makes the package of a skill.
//!
//! Guarantees: the same files make the same bytes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_package::Package;
use palyra_types::Sha256Digest;
use serde::Serialize;

use super::{
    directory::SkillDirectory,
    doubts::doubts,
    words::{asks, bytes, quoted},
};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{DIM, GOOD, Terminal, WAIT},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PackArgs {
    /// The directory of the skill.
    #[arg(default_value = ".", hide_default_value = true)]
    directory: PathBuf,
    /// Write the package to this file. Without it, NAME-VERSION.skill in the working directory.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Pack the program that is there, and build nothing.
    #[arg(long)]
    no_build: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    file: &'a Path,
    id: &'a str,
    version: String,
    bytes: usize,
    package_sha256: Sha256Digest,
    component_sha256: Sha256Digest,
    asks: Vec<String>,
    tools: Vec<&'a str>,
    cases: usize,
    /// What may have been overlooked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(super) fn run(args: &PackArgs, terminal: &Terminal) -> Outcome {
    let skill = SkillDirectory::open(&args.directory)?;
    if !args.no_build {
        skill.build_aloud(terminal)?;
    }
    let built = skill.package()?;
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(built.package.file_name()));
    let before = fs::read(&file).ok();
    fs::write(&file, &built.archive).map_err(|error| {
        let what = format!("{} cannot be written", file.display());
        let help = "check the disk, or name another file: --output FILE";
        Failure::new(Exit::Failure, "unwritable", what, error.to_string(), help)
    })?;
    let package = &built.package;
    let warnings = doubts(package, &built.archive, (&file, before.as_deref()));
    for warning in &warnings {
        terminal.talk_rows(terminal.paint_err(WAIT, &format!("! {warning}")));
    }
    if terminal.json {
        terminal.document("skill.pack", Report { warnings, ..report(&file, built.archive.len(), package) });
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ packed"), file.display()));
    tell(package, built.archive.len(), terminal);
    terminal.talk(format!("next: palyra skills sign {}", quoted(&file.display().to_string())));
    Ok(Exit::Ok)
}

/// What a package is, and what it asks for.
fn tell(package: &Package, size: usize, terminal: &Terminal) {
    let manifest = &package.manifest;
    let size = bytes(u64::try_from(size).unwrap_or(u64::MAX));
    terminal.out(format!("  {} {} {}, {size}", terminal.paint(DIM, "skill     "), manifest.id, manifest.version));
    terminal.out(format!("  {} {}", terminal.paint(DIM, "digest    "), package.digest));
    let tools: Vec<&str> = manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
    terminal.out(format!("  {} {}", terminal.paint(DIM, "tools     "), tools.join(", ")));
    asks(&manifest.capabilities.words(), terminal);
}

fn report<'a>(file: &'a Path, bytes: usize, package: &'a Package) -> Report<'a> {
    let manifest = &package.manifest;
    Report {
        file,
        id: manifest.id.as_str(),
        version: manifest.version.to_string(),
        bytes,
        package_sha256: package.digest,
        component_sha256: package.component_digest,
        asks: manifest.capabilities.words(),
        tools: manifest.tools.iter().map(|tool| tool.name.as_str()).collect(),
        cases: package.golden.len(),
        warnings: Vec::new(),
    }
}

const EXAMPLES: &str = "\
Examples:
  palyra skills pack                       builds it first, if skill.toml says how
  palyra skills pack skills/hello --no-build --output hello.skill";
