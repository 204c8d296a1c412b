//! `palyra journal export`: a bundle that anybody can verify, with `palyra journal verify --bundle` or without Palyra.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_api::journal::ExportQuery;

use crate::{Outcome, at::At, connection::Connection, exit::Exit, failure::Failure, terminal::Terminal};

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// The first record. Without it, the first that is kept.
    #[arg(long, value_name = "N")]
    first: Option<u64>,
    /// The last record. Without it, the last there is.
    #[arg(long, value_name = "N")]
    last: Option<u64>,
    /// A new file to write to. Without it, standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &ExportArgs, at: &At, terminal: &Terminal) -> Outcome {
    let connection = Connection::find(at, terminal)?;
    let query = ExportQuery { first: args.first, last: args.last };
    let Some(path) = &args.output else {
        connection.run(async |daemon| Ok(daemon.export(&query, &mut io::stdout().lock()).await?))?;
        return Ok(Exit::Ok);
    };
    let mut file = new_file(path)?;
    let count = connection.run(async |daemon| Ok(daemon.export(&query, &mut file).await?));
    if count.is_err() {
        // Half a bundle is none.
        let _ = std::fs::remove_file(path);
    }
    let count = count?;
    file.sync_all().map_err(|error| unwritable(path, &error))?;
    if terminal.json {
        terminal.document("journal.export", serde_json::json!({ "file": path, "bytes": count }));
    } else {
        terminal.talk(format!("{count} bytes in {}", path.display()));
        terminal.talk(format!("verify it: `palyra journal verify --bundle {}`", path.display()));
    }
    Ok(Exit::Ok)
}

/// A new file that only its owner can read, because records hold what was said.
pub(super) fn new_file(path: &Path) -> Result<std::fs::File, Failure> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| unwritable(path, &error))
}

/// Writes a new file.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = new_file(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written", path.display());
    Failure::new(Exit::Failure, "unwritable", what, error.to_string(), "name a new file in a directory of yours")
}
