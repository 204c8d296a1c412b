//! `palyra devices export`: the key and the certificate of this device as files, for programs such as curl and openssl.
//!
//! Guarantees: all of it lies in a directory that only its owner can enter; no file is replaced.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_identity::{DeviceIdentity, SERVER_NAME, private_file};

use crate::{
    Outcome,
    connection::Connection,
    exit::Exit,
    failure::Failure,
    terminal::{Terminal, WAIT},
};

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// The directory to write to. It is made if there is none.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(args: &ExportArgs, connection: &Connection, terminal: &Terminal) -> Outcome {
    let identity = connection.identity();
    let directory = &args.directory;
    private_file::make_directory(directory)
        .map_err(|error| unwritable(directory, &error.to_string(), error.advice()))?;
    let files = [(CERTIFICATE, &*identity.certificate), (KEY, &*identity.key), (AUTHORITIES, &*identity.authorities)];
    if let Some((name, _)) = files.iter().find(|(name, _)| fs::symlink_metadata(directory.join(name)).is_ok()) {
        let cause = format!("there is a {name} already");
        return Err(unwritable(directory, &cause, "name a new directory, or remove what an earlier export left"));
    }
    for (name, content) in files {
        let path = directory.join(name);
        write_new(&path, content).map_err(|error| unwritable(&path, &error.to_string(), "check the disk"))?;
    }
    if terminal.json {
        let files = files.map(|(name, _)| directory.join(name));
        terminal.document("device.export", serde_json::json!({ "files": files, "curl": curl(directory, identity) }));
        return Ok(Exit::Ok);
    }
    terminal.out(curl(directory, identity));
    let until = identity.until().map_or_else(|error| error.to_string(), |until| until.to_string());
    terminal.talk(format!("the certificate is valid until {until}; what is written there is not renewed by itself"));
    terminal.talk(
        terminal.paint_err(WAIT, &format!("! whoever has {KEY} is this device; remove it when it is not needed")),
    );
    Ok(Exit::Ok)
}

/// What to type to ask the daemon who this is.
// Every daemon answers to one name; its authority is what tells it apart. So curl is told where that name is.
fn curl(directory: &Path, identity: &DeviceIdentity) -> String {
    let file = |name: &str| quoted(&directory.join(name).to_string_lossy());
    let (address, port) = (&identity.address, identity.address.port());
    format!(
        "curl --cacert {} --cert {} --key {} --connect-to ::{address} https://{SERVER_NAME}:{port}/api/v1/identity",
        file(AUTHORITIES),
        file(CERTIFICATE),
        file(KEY)
    )
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all())
}

fn unwritable(path: &Path, cause: &str, help: &str) -> Failure {
    let what = format!("{} cannot be written", path.display());
    Failure::new(Exit::Failure, "unwritable", what, cause, help)
}

const CERTIFICATE: &str = "device.pem";
const KEY: &str = "device.key";
const AUTHORITIES: &str = "authorities.pem";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_one() {
        assert_eq!(quoted("/home/ada/keys"), "/home/ada/keys");
        assert_eq!(quoted("/home/ada's $HOME"), r"'/home/ada'\''s $HOME'");
    }
}
