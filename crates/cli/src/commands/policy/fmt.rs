//! `palyra policy fmt`: formats policy files in place, or checks that they are formatted.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_policy::{SourceFile, directory::read_policies, format::format_policies};
use serde::Serialize;

use crate::{Outcome, exit::Exit, failure::Failure, terminal::Terminal};

#[derive(Args)]
pub(crate) struct FmtArgs {
    /// .cedar files or directories of them; `-` formats standard input to standard output.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Change nothing; name the files that would change and exit 1 if there are any.
    #[arg(long)]
    check: bool,
}

#[derive(Serialize)]
struct Report {
    changed: Vec<String>,
    unchanged: usize,
}

pub(crate) fn run(args: &FmtArgs, terminal: &Terminal) -> Outcome {
    if args.paths.iter().any(|path| path == Path::new("-")) {
        return stdin(args, terminal);
    }
    // Everything is formatted before anything is written, so a file that does not parse changes no other.
    let mut changes = Vec::new();
    let mut unchanged = 0;
    for path in &args.paths {
        for file in read_policies(path)? {
            let formatted = format(&file)?;
            if formatted == file.text() {
                unchanged += 1;
            } else {
                changes.push((file.name().to_owned(), formatted));
            }
        }
    }
    for (name, text) in &changes {
        if !args.check {
            replace(Path::new(name), text)?;
        }
        if !terminal.json {
            terminal.out(format!("{} {name}", if args.check { "would format" } else { "formatted" }));
        }
    }
    let dirty = args.check && !changes.is_empty();
    if terminal.json {
        let changed = changes.into_iter().map(|(name, _)| name).collect();
        terminal.document("policy.fmt", Report { changed, unchanged });
    }
    Ok(if dirty { Exit::Failure } else { Exit::Ok })
}

fn stdin(args: &FmtArgs, terminal: &Terminal) -> Outcome {
    let mut text = String::new();
    io::stdin().lock().take(1 << 22).read_to_string(&mut text).map_err(|error| {
        Failure::new(Exit::Failure, "unreadable", "standard input cannot be read", error.to_string(), "pipe UTF-8 text")
    })?;
    let file = SourceFile::operator("standard input", text);
    let formatted = format(&file)?;
    let dirty = args.check && formatted != file.text();
    if !args.check {
        terminal.out(formatted.trim_end_matches('\n'));
    }
    Ok(if dirty { Exit::Failure } else { Exit::Ok })
}

fn format(file: &SourceFile) -> Result<String, Failure> {
    format_policies(file).map_err(|error| {
        let help = format!("run `palyra policy check {}` to see where", error.name);
        Failure::new(Exit::Failure, "syntax", format!("{} cannot be formatted", error.name), error.message, help)
    })
}

/// Replaces a file whole or not at all, keeping its permissions.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let attempt = || -> io::Result<()> {
        // Through a link the target is meant, not the link.
        let path = fs::canonicalize(path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".palyra-fmt");
        let beside = path.with_file_name(name);
        fs::write(&beside, text)?;
        fs::set_permissions(&beside, fs::metadata(&path)?.permissions())?;
        fs::rename(&beside, &path)
    };
    attempt().map_err(|error| {
        let what = format!("{} cannot be written", path.display());
        Failure::new(Exit::Failure, "unwritable", what, error.to_string(), "check that you may write there")
    })
}
