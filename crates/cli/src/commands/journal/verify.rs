//! `palyra journal verify`: whether a journal, or an exported bundle, is what was written. It trusts no daemon and needs none.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_api::journal::Verification;
use palyra_journal::{Failure as Bad, Fault, Trust, VerifyKey, verify, verify_bundle};

use crate::{
    Outcome,
    at::At,
    connection::home,
    exit::Exit,
    failure::Failure,
    terminal::{BAD, GOOD, Terminal, WAIT},
};

#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// The journal's directory. Without it, that of the state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "bundle")]
    directory: Option<PathBuf>,
    /// The key that must have signed it, as text or in a file. Without it, the key beside the journal is believed.
    #[arg(long, value_name = "TEXT|FILE")]
    key: Option<String>,
    /// Checkpoints that were kept elsewhere. Can be given again.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Verify an exported bundle instead; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

pub(super) fn run(args: &VerifyArgs, at: &At, terminal: &Terminal) -> Outcome {
    let trust = args.trust()?;
    let (outcome, what) = match &args.bundle {
        Some(path) => (bundle(path, &trust)?, path.clone()),
        None => {
            let directory = match &args.directory {
                Some(directory) => directory.clone(),
                None => {
                    at.unnamed("verifying the journal's own files")?;
                    home()?.journal()
                }
            };
            (journal(&directory, &trust), directory)
        }
    };
    match &outcome {
        Err(Bad { fault: Fault::Absent(cause), .. }) => {
            let help = "name a journal with --directory, or start a daemon: `palyra up`";
            Err(Failure::new(Exit::Failure, "no_journal", "there is nothing to verify", cause, help))
        }
        _ => Ok(tell(&outcome, &what, &trust, terminal)),
    }
}

/// What verification found, with what people are told besides.
struct Found {
    verification: Verification,
    notes: Vec<String>,
}

fn journal(directory: &Path, trust: &Trust) -> Result<Found, Bad> {
    let mut progress = Progress::new();
    let report = verify(directory, trust, &mut |done, all| progress.show(done, all));
    progress.end();
    let report = report?;
    let mut notes = vec![format!("{} sealed segments, signed head of {} records", report.segments, report.head.size)];
    if report.unfinished > 0 {
        notes.push(format!("{} bodies are still to be erased; the daemon goes on with that", report.unfinished));
    }
    if report.too_old > 0 {
        notes.push(format!("{} saved checkpoints are older than what is kept, and show nothing", report.too_old));
    }
    let verification = sound(report.origin, report.first, report.records, report.erased);
    Ok(Found { verification, notes })
}

fn bundle(path: &Path, trust: &Trust) -> Result<Result<Found, Bad>, Failure> {
    let mut reader: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).map_err(|error| unreadable(path, &error.to_string()))?))
    };
    Ok(verify_bundle(&mut reader, trust).map(|found| Found {
        verification: sound(found.origin, found.first, found.records, found.erased),
        notes: Vec::new(),
    }))
}

const fn sound(origin: String, first: u64, records: u64, erased: u64) -> Verification {
    Verification { ok: true, origin: Some(origin), first, records, erased, bad_record: None, fault: None }
}

fn tell(outcome: &Result<Found, Bad>, what: &Path, trust: &Trust, terminal: &Terminal) -> Exit {
    match outcome {
        Ok(Found { verification, notes }) => {
            if terminal.json {
                terminal.document("journal.verification", verification);
                return Exit::Ok;
            }
            let origin = verification.origin.as_deref().unwrap_or_default();
            terminal.out(format!(
                "{}: {} records from {} on, {} bodies erased, of {origin}",
                terminal.paint(GOOD, "✔ it is what was written"),
                verification.records,
                verification.first,
                verification.erased
            ));
            for note in notes {
                terminal.out(format!("  {note}"));
            }
            if trust.key.is_none() && trust.checkpoints.is_empty() {
                terminal.talk(terminal.paint_err(
                    WAIT,
                    "! whoever has the daemon's rights could have written all of it anew; a key or a checkpoint that was kept elsewhere tells",
                ));
            }
            Exit::Ok
        }
        Err(bad) => {
            if terminal.json {
                let verification = Verification {
                    ok: false,
                    origin: None,
                    first: 0,
                    records: 0,
                    erased: 0,
                    bad_record: Some(bad.seq),
                    fault: Some(bad.fault.to_string()),
                };
                terminal.document("journal.verification", verification);
            } else {
                terminal.out(format!(
                    "{} record {} of {}: {}",
                    terminal.paint(BAD, "✖ it is not what was written:"),
                    bad.seq,
                    what.display(),
                    bad.fault
                ));
                terminal.talk(format!("help:  {}", bad.fault.advice()));
            }
            Exit::Unverified
        }
    }
}

impl VerifyArgs {
    fn trust(&self) -> Result<Trust, Failure> {
        let key = self.key.as_deref().map(key).transpose()?;
        let mut checkpoints = Vec::new();
        for path in &self.checkpoint {
            let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error.to_string()))?;
            if !text.lines().any(|line| line.starts_with("— ")) {
                return Err(unreadable(path, "it holds no checkpoint: nothing in it is signed"));
            }
            checkpoints.extend(split(&text));
        }
        Ok(Trust { key, checkpoints })
    }
}

/// A key as text, or in a file.
pub(super) fn key(text: &str) -> Result<VerifyKey, Failure> {
    if let Ok(key) = VerifyKey::parse(text) {
        return Ok(key);
    }
    let path = Path::new(text);
    let content = fs::read_to_string(path)
        .map_err(|error| unreadable(path, &format!("it is no key, and cannot be read as a file either: {error}")))?;
    VerifyKey::parse(&content).map_err(|error| unreadable(path, &error.to_string()))
}

/// The checkpoints of a file that a sink wrote: notes one after the other. A signature line ends the signatures of a note unless
/// another follows it.
fn split(text: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = String::new();
    let mut signed = false;
    for line in text.lines() {
        let is_signature = line.starts_with("— ");
        if signed && !is_signature {
            notes.push(std::mem::take(&mut note));
            signed = false;
        }
        if note.is_empty() && line.is_empty() {
            continue;
        }
        note.push_str(line);
        note.push('\n');
        signed |= is_signature;
    }
    if !note.is_empty() {
        notes.push(note);
    }
    notes
}

fn unreadable(path: &Path, cause: &str) -> Failure {
    let what = format!("{} cannot be used", path.display());
    Failure::new(Exit::Usage, "unreadable", what, cause, "check the path")
}

/// How far verification is, for a person at a terminal.
struct Progress {
    shown: bool,
    last: u64,
}

impl Progress {
    fn new() -> Self {
        Self { shown: io::stderr().is_terminal(), last: u64::MAX }
    }

    fn show(&mut self, done: u64, all: u64) {
        let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100);
        if self.shown && percent != self.last {
            let _ = write!(io::stderr(), "\r{done} of {all} records, {percent} %");
            self.last = percent;
        }
    }

    fn end(&self) {
        if self.shown && self.last != u64::MAX {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_checkpoints_is_read_note_by_note() {
        let (one, two) = ("origin\n1\nroot=\n\n— origin aaaa\n", "origin\n2\nroot=\n\n— origin bbbb\n— other cccc\n");
        assert_eq!(split(&format!("{one}\n{two}\n")), [one, two]);
        assert_eq!(split(&format!("{one}{two}")), [one, two]);
        assert_eq!(split(one), [one]);
        assert_eq!(split("\n\n"), [""; 0]);
        assert_eq!(split("garbage"), ["garbage\n"], "what is no checkpoint is not passed over");
    }
}
