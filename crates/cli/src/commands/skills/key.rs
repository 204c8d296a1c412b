//! The key that an author signs packages with: where it is kept, and how it is opened.
//!
//! Guarantees: a key is written once, for its owner alone, and never over another. A password is typed or comes from a file, never from the command line.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_package::{SecretSigningKey, SignatureError};
use zeroize::Zeroizing;

use crate::{
    commands::vault::passphrase,
    connection::{block_on, home},
    exit::Exit,
    failure::Failure,
};

/// Where the password of a key comes from.
#[derive(Args)]
pub(super) struct PasswordArgs {
    /// Read the password from this file; `-` is standard input. Without it, it is asked for, or read from standard input.
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
}

impl PasswordArgs {
    /// A password for a new key, typed twice.
    pub(super) fn new_one(&self) -> Result<Zeroizing<String>, Failure> {
        self.read("password for the new key", true)
    }

    fn read(&self, prompt: &str, is_new: bool) -> Result<Zeroizing<String>, Failure> {
        block_on(passphrase(self.password_file.as_deref(), (prompt, is_new))).map_err(|failure| {
            let what = "no password of the key".to_owned();
            Failure { what, ..failure }
        })
    }
}

/// The file of a key, if none is named: in the state directory, which no governed call may touch.
pub(super) fn default_file() -> Result<PathBuf, Failure> {
    Ok(home()?.path().join("publisher.key"))
}

/// The file of the public key that belongs to the file of a secret one: `publisher.key` and `publisher.pub`.
pub(super) fn public_file(secret: &Path) -> PathBuf {
    match secret.extension() {
        Some(ending) if ending == "key" => secret.with_extension("pub"),
        _ => {
            let mut name = secret.as_os_str().to_owned();
            name.push(".pub");
            name.into()
        }
    }
}

/// Opens the key in a file, and asks for its password if it has one.
pub(super) fn open(file: &Path, password: &PasswordArgs) -> Result<SecretSigningKey, Failure> {
    let what = format!("the key in {} cannot be used", file.display());
    let text = fs::read_to_string(file).map(Zeroizing::new).map_err(|error| {
        let help = "make one: `palyra skills keygen`; or name another with --key";
        Failure::new(Exit::Failure, "no_key", what.clone(), error.to_string(), help)
    })?;
    let refused =
        |error: &SignatureError| Failure::new(Exit::Failure, "no_key", what.clone(), error.to_string(), error.advice());
    match SecretSigningKey::load(&text, None) {
        Err(SignatureError::PasswordNeeded) => {
            let password = password.read(&format!("password of {}", file.display()), false)?;
            SecretSigningKey::load(&text, Some(&password)).map_err(|error| refused(&error))
        }
        other => other.map_err(|error| refused(&error)),
    }
}

/// Writes a new key and its public part. Nothing is overwritten.
pub(super) fn write(file: &Path, key: &SecretSigningKey) -> Result<PathBuf, Failure> {
    let public = public_file(file);
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) {
        // The state directory of whoever has no daemon here is as private as one with a daemon.
        let made = parent.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| DirBuilder::new().mode(0o700).create(parent)).map_err(|error| unwritable(parent, &error))?;
    }
    write_new(file, key.to_file(), 0o600).map_err(|error| unwritable(file, &error))?;
    write_new(&public, &key.public().to_file(), 0o644).map_err(|error| unwritable(&public, &error))?;
    Ok(public)
}

/// Refuses files that are there already.
pub(super) fn absent(file: &Path) -> Result<(), Failure> {
    for path in [file, &public_file(file)] {
        if path.symlink_metadata().is_ok() {
            let what = format!("{} is not written", path.display());
            let help = "sign with the key that is there, or name a new file: --output FILE";
            let cause = "there is a file already, and a key that is gone cannot be made again";
            return Err(Failure::new(Exit::Usage, "key_exists", what, cause, help));
        }
    }
    Ok(())
}

fn write_new(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all())
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written", path.display());
    Failure::new(
        Exit::Failure,
        "unwritable",
        what,
        error.to_string(),
        "name a place that can be written: --output FILE",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_public_key_lies_beside_the_secret_one() {
        let beside = |name: &str| public_file(Path::new(name)).to_str().unwrap().to_owned();
        assert_eq!((beside("a/publisher.key"), beside("a/acme")), ("a/publisher.pub".into(), "a/acme.pub".into()));
        assert_eq!(beside("acme.v2"), "acme.v2.pub");
    }

    #[test]
    fn a_key_is_private_reads_back_and_is_never_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("state/publisher.key");
        absent(&file).unwrap();
        let key = SecretSigningKey::generate(None).unwrap();
        let public = write(&file, &key).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(root.path().join("state")).unwrap().permissions().mode() & 0o777, 0o700);
        let opened = open(&file, &PasswordArgs { password_file: None }).unwrap();
        assert_eq!(opened.public().to_file(), fs::read_to_string(&public).unwrap());
        assert_eq!(absent(&file).unwrap_err().code, "key_exists");
        assert_eq!(write(&file, &key).unwrap_err().code, "unwritable");
        fs::remove_file(&file).unwrap();
        assert_eq!(absent(&file).unwrap_err().code, "key_exists", "its public part is still there");
    }
}
