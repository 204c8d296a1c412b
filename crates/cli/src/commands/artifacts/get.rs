//! `palyra artifacts get`: the content of a file that was kept.
//!
//! Guarantees: nothing is overwritten; what an agent made is not printed to a terminal, which it could control.

use std::{
    fs::OpenOptions,
    io::{IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct GetArgs {
    /// The file, by its id.
    id: String,
    /// Write it to this new file. Without it, to standard output, if that is no terminal.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn run(args: &GetArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let id = args.id.trim().to_ascii_uppercase();
    match &args.output {
        Some(path) => {
            let mut content = Vec::new();
            daemon.artifact(&id, &mut content).await?;
            let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let written = opened.and_then(|mut file| file.write_all(&content).and_then(|()| file.sync_all()));
            written.map_err(|error| unwritable(path, &error.to_string()))?;
            match terminal.json {
                true => {
                    terminal.document("artifact", serde_json::json!({ "id": id, "file": path, "bytes": content.len() }))
                }
                false => {
                    let path = visible(&path.to_string_lossy());
                    terminal.out(format!("{} {path}, {} bytes", terminal.paint(GOOD, "✔ written"), content.len()));
                }
            }
        }
        // SECURITY: a content that is printed to a terminal can redraw it, and what was asked before.
        None if std::io::stdout().is_terminal() => {
            let what = "the content is not shown on a terminal";
            let help = "name a new file with --output, or pipe it: palyra artifacts get ID | less";
            return Err(Failure::new(Exit::Usage, "terminal", what, "what an agent made could control it", help));
        }
        None => {
            daemon.artifact(&id, &mut std::io::stdout()).await?;
        }
    }
    Ok(Exit::Ok)
}

fn unwritable(path: &Path, cause: &str) -> Failure {
    let what = format!("{} cannot be written", path.display());
    Failure::new(Exit::Failure, "unwritable", what, cause, "name a new file")
}
