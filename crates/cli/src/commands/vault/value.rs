//! Where values come from: standard input, a file, or a prompt that shows nothing.
//!
//! Guarantees: what was read is wiped when it is dropped. Refuses: the command line, which every program of the machine can see.

use std::{
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use palyra_api::vault::Encoding;
use palyra_vault::inject::{LONGEST_UNSEEN, SHORTEST_UNSEEN};
use zeroize::Zeroizing;

use crate::{exit::Exit, failure::Failure, keyboard::Keyboard};

/// The flags that say where a value comes from.
#[derive(Args)]
pub(crate) struct ValueArgs {
    /// Read the value from this file, byte for byte; `-` is standard input.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Keep the line feed at the end of standard input, which is dropped otherwise.
    #[arg(long)]
    exact: bool,
    /// Not taken: it is there to say why.
    #[arg(long = "value", hide = true, num_args = 0..=1, value_name = "VALUE")]
    value: Option<Option<String>>,
    /// Not taken: it is there to say why.
    #[arg(hide = true, value_name = "VALUE")]
    rest: Vec<String>,
}

impl ValueArgs {
    /// Refuses a value on the command line.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.value.is_none() && self.rest.is_empty() {
            return Ok(());
        }
        Err(on_the_command_line())
    }

    /// Whether it is said where the value comes from.
    pub(super) const fn is_given(&self) -> bool {
        self.file.is_some() || self.exact
    }

    /// Reads the value.
    pub(super) async fn read(&self, name: &str) -> Result<Value, Failure> {
        let bytes = match &self.file {
            Some(path) if path != Path::new("-") => from_file(path)?,
            None if io::stdin().is_terminal() => prompted(name).await?,
            _ => from_stdin(self.exact)?,
        };
        match bytes.len() {
            0 => Err(unusable("it is empty", "send the value by standard input, name a file, or type it when asked")),
            length if length > LONGEST => Err(unusable(
                &format!("it is longer than {LONGEST} bytes"),
                "keep a large file encrypted elsewhere, and its key here",
            )),
            _ => Ok(Value(bytes)),
        }
    }
}

/// A value that was typed where it must not be.
pub(super) fn on_the_command_line() -> Failure {
    Failure::new(
        Exit::Usage,
        "value_in_arguments",
        "a value is not taken from the command line",
        "every program of this machine can see it there, and the shell keeps it in its history",
        "leave it out and type it when asked, send it by standard input, or name a file with --file; and change \
         the value that was typed, which others may know now",
    )
}

/// A value that was read.
pub(super) struct Value(Zeroizing<Vec<u8>>);

impl Value {
    /// As the daemon is told.
    pub(super) fn spelt(self) -> (Zeroizing<String>, Encoding) {
        match std::str::from_utf8(&self.0) {
            Ok(text) => (Zeroizing::new(text.to_owned()), Encoding::Utf8),
            Err(_) => (Zeroizing::new(BASE64_STANDARD.encode(&*self.0)), Encoding::Base64),
        }
    }

    /// Why it cannot be sent unseen, if it cannot.
    pub(super) fn is_unsendable(&self) -> Option<String> {
        match self.0.len() {
            length if length < SHORTEST_UNSEEN => Some(format!("it has fewer than {SHORTEST_UNSEEN} bytes")),
            length if length > LONGEST_UNSEEN => Some(format!("it has more than {LONGEST_UNSEEN} bytes")),
            _ if self.0.ends_with(b"\n") => Some("its last byte is a line feed, which no header can hold".to_owned()),
            _ if self.0.iter().any(|byte| matches!(byte, 0..=31 | 127) && *byte != b'\t') => {
                Some("it has control characters, which no header can hold".to_owned())
            }
            _ => None,
        }
    }
}

/// A passphrase: typed, or the first line of a file, `-` for standard input. A new one is typed twice.
pub(crate) async fn passphrase(
    file: Option<&Path>,
    (prompt, is_new): (&str, bool),
) -> Result<Zeroizing<String>, Failure> {
    let refused = |cause: &str, help: &str| Failure::new(Exit::Usage, "no_passphrase", "no passphrase", cause, help);
    let bytes = match file {
        Some(path) if path != Path::new("-") => from_file(path)?,
        None if io::stdin().is_terminal() => {
            let mut keyboard = Keyboard::open().ok_or_else(|| refused("there is no terminal", BY_STDIN))?;
            let first = keyboard.secret(&format!("{prompt}: ")).await.map(Zeroizing::new);
            if is_new {
                let again = keyboard.secret("once more: ").await.map(Zeroizing::new);
                if first != again {
                    return Err(refused("the two differ", "type the same one twice"));
                }
            }
            let first = first.filter(|words| !words.is_empty());
            return first.ok_or_else(|| refused("nothing was typed", "type it, or send it by standard input"));
        }
        _ => from_stdin(false)?,
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| refused("it is not UTF-8", BY_STDIN))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Zeroizing::new(line.to_owned())),
        _ => Err(refused("there is none on standard input", BY_STDIN)),
    }
}

async fn prompted(name: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let none = || unusable("there is no terminal to ask at", "send it by standard input, or name a file with --file");
    let mut keyboard = Keyboard::open().ok_or_else(none)?;
    let stopped =
        || Failure::new(Exit::Interrupted, "interrupted", "nothing was put", "nothing was typed", "try again");
    let first = keyboard.secret(&format!("value of {name}: ")).await.map(Zeroizing::new).ok_or_else(stopped)?;
    let again = keyboard.secret("once more: ").await.map(Zeroizing::new).ok_or_else(stopped)?;
    if first != again {
        return Err(unusable("the two differ", "type the same one twice"));
    }
    Ok(Zeroizing::new(first.as_bytes().to_vec()))
}

fn from_stdin(exact: bool) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut bytes = bounded(io::stdin().lock()).map_err(|error| unusable(&error.to_string(), "try again"))?;
    if !exact && bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    Ok(bytes)
}

fn from_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let unreadable =
        |error: io::Error| unusable(&format!("{}: {error}", path.display()), "name a file that can be read");
    let file = std::fs::File::open(path).map_err(unreadable)?;
    bounded(file).map_err(unreadable)
}

/// As much as a value can have, and one byte more.
fn bounded(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 3));
    // Room for a line end that is dropped.
    from.take(LONGEST_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unusable(cause: &str, help: &str) -> Failure {
    Failure::new(Exit::Usage, "no_value", "the value cannot be used", cause, help)
}

const BY_STDIN: &str = "send it by standard input, as one line";

/// How many bytes a value has at most.
const LONGEST: usize = palyra_vault::LONGEST_VALUE;
const LONGEST_READ: u64 = (64 << 10) + 3;
