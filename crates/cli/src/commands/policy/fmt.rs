//! `palyra policy fmt`: formats policy files in place, or checks that they are formatted.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
};

use clap::Args;
use palyra_policy::{SourceFile, directory::read_policies, format::format_policies, problem::MAX_FILE_SIZE};
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
    /// What standard input becomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
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
                changes.push((file, formatted));
            }
        }
    }
    for (file, text) in &changes {
        // SECURITY: the name is for people. Where it hides something, it is another file's path.
        if let Some(path) = file.path().filter(|_| !args.check) {
            replace(path, text)?;
        }
        if !terminal.json {
            terminal.out(format!("{} {}", if args.check { "would format" } else { "formatted" }, file.name()));
        }
    }
    let dirty = args.check && !changes.is_empty();
    if terminal.json {
        let changed = changes.iter().map(|(file, _)| file.name().to_owned()).collect();
        terminal.document("policy.fmt", Report { changed, unchanged, text: None });
    }
    Ok(if dirty { Exit::Failure } else { Exit::Ok })
}

fn stdin(args: &FmtArgs, terminal: &Terminal) -> Outcome {
    let mut text = String::new();
    let unreadable = |cause: String, help: &str| {
        Failure::new(Exit::Failure, "unreadable", "standard input cannot be read", cause, help)
    };
    // One byte more than allowed tells a text that would be cut off.
    let read = io::stdin().lock().take(MAX_FILE_SIZE + 1).read_to_string(&mut text);
    let read = read.map_err(|error| unreadable(error.to_string(), "pipe UTF-8 text"))?;
    if u64::try_from(read).unwrap_or(u64::MAX) > MAX_FILE_SIZE {
        return Err(unreadable(format!("it is longer than {MAX_FILE_SIZE} bytes"), "format it in parts"));
    }
    let file = SourceFile::operator("standard input", text);
    let formatted = format(&file)?;
    let changes = formatted != file.text();
    let dirty = args.check && changes;
    if terminal.json {
        let changed = changes.then(|| file.name().to_owned()).into_iter().collect();
        let text = (!args.check).then_some(formatted);
        terminal.document("policy.fmt", Report { changed, unchanged: usize::from(!changes), text });
    } else if !args.check {
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

/// Replaces a file whole or not at all, keeping its permissions. A file that must not be written is not replaced either.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let attempt = || -> io::Result<()> {
        // Through a link the target is meant, not the link.
        let path = fs::canonicalize(path)?;
        let permissions = fs::metadata(&path)?.permissions();
        if permissions.readonly() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.palyra-fmt", process::id()));
        let beside = path.with_file_name(name);
        // SECURITY: a new file or none. A link that someone put there is not followed.
        let mut file = fs::File::create_new(&beside)?;
        let written = file
            .set_permissions(permissions)
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&beside, &path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    };
    attempt().map_err(|error| {
        let what = format!("{} cannot be written", path.display());
        Failure::new(Exit::Failure, "unwritable", what, error.to_string(), "check that you may write there")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const LOOSE: &str = "permit(principal,action,resource);\n";
    const TIDY: &str = "permit (principal, action, resource);\n";

    fn format(path: &Path) {
        let terminal = Terminal::detect(true);
        assert!(run(&FmtArgs { paths: vec![path.to_owned()], check: false }, &terminal).is_ok());
    }

    #[test]
    fn a_name_that_hides_something_is_not_taken_for_the_file_it_looks_like() {
        let directory = tempfile::tempdir().unwrap();
        let (hidden, looks) = (directory.path().join("x\u{200b}.cedar"), directory.path().join("x<U+200B>.cedar"));
        fs::write(&hidden, LOOSE).unwrap();
        fs::write(&looks, "forbid (principal, action, resource);\n").unwrap();
        format(directory.path());
        assert_eq!(fs::read_to_string(&hidden).unwrap(), TIDY);
        assert_eq!(fs::read_to_string(&looks).unwrap(), "forbid (principal, action, resource);\n");
    }

    #[test]
    fn a_link_planted_beside_a_file_is_not_written_through() {
        let directory = tempfile::tempdir().unwrap();
        let (file, precious) = (directory.path().join("a.cedar"), directory.path().join("precious"));
        fs::write(&file, LOOSE).unwrap();
        fs::write(&precious, "precious").unwrap();
        for name in ["a.cedar.palyra-fmt".to_owned(), format!("a.cedar.{}.palyra-fmt", process::id())] {
            symlink(&precious, directory.path().join(name)).unwrap();
        }
        assert!(replace(&file, TIDY).is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&file).unwrap(), LOOSE);
    }
}
