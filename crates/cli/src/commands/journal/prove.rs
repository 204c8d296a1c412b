//! `palyra journal prove`: the proof that a record is in the journal, checked before it is printed.

use std::path::PathBuf;

use clap::Args;
use palyra_api::{Document, journal::Proof};
use palyra_journal::{Checkpoint, InclusionProof, VerifyKey};
use palyra_types::Sha256Digest;

use super::{export::write_new, verify};
use crate::{
    Outcome,
    at::At,
    connection::Connection,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct ProveArgs {
    /// The number of the record.
    seq: u64,
    /// The key that must have signed the journal, as text or in a file. Without it, the key that lies beside the journal.
    #[arg(long, value_name = "TEXT|FILE")]
    key: Option<String>,
    /// A new file to write the proof to, as JSON.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &ProveArgs, at: &At, terminal: &Terminal) -> Outcome {
    let connection = Connection::find(at, terminal)?;
    let key = match &args.key {
        Some(text) => Some(verify::key(text)?),
        // Whoever can read the daemon's state directory need not take its word for it.
        None => connection.place().ok().and_then(|contact| VerifyKey::load(&contact.journal()).ok()),
    };
    let proof = connection.run(async |daemon| Ok(daemon.proof(args.seq).await?))?;
    let size = check(&proof, args.seq, key.as_ref()).map_err(|cause| {
        let help = "run `palyra journal verify`; if that fails, too, the journal was changed";
        Failure::new(Exit::Unverified, "unproven", "the proof proves nothing", cause, help)
    })?;
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&Document::new("journal.proof", &proof)).unwrap_or_default();
        write_new(path, &format!("{text}\n"))?;
    }
    if terminal.json {
        terminal.document("journal.proof", &proof);
        return Ok(Exit::Ok);
    }
    terminal.out(format!(
        "{}: record {} ({}, {}) is one of {size}",
        terminal.paint(GOOD, "✔ proven"),
        proof.record.seq,
        proof.record.kind,
        proof.record.time
    ));
    terminal.out(format!("  record  {}", proof.record.record));
    terminal.out(format!("  leaf    {}", proof.record.hash));
    for hash in &proof.hashes {
        terminal.out(format!("  beside  {hash}"));
    }
    for line in proof.checkpoint.lines() {
        terminal.out(format!("  signed  {line}"));
    }
    terminal.out(format!("  key     {}", proof.key));
    Ok(Exit::Ok)
}

/// Checks everything that a stranger would, and says how many records the signed checkpoint covers.
fn check(proof: &Proof, seq: u64, known: Option<&VerifyKey>) -> Result<u64, String> {
    let key = VerifyKey::parse(&proof.key).map_err(|error| error.to_string())?;
    if known.is_some_and(|known| *known != key) {
        return Err("it is signed with another key than the journal's".to_owned());
    }
    let checkpoint = Checkpoint::open(&proof.checkpoint, &key).map_err(|error| error.to_string())?;
    let leaf = Sha256Digest::of(&[&[0], proof.record.record.as_bytes()].concat());
    if leaf != proof.record.hash {
        return Err("the hash of the record is not its hash".to_owned());
    }
    let header: serde_json::Value = serde_json::from_str(&proof.record.record).map_err(|error| error.to_string())?;
    if proof.record.seq != seq || header.get("seq").and_then(serde_json::Value::as_u64) != Some(seq) {
        return Err("it is about another record".to_owned());
    }
    let inclusion = InclusionProof { seq, size: checkpoint.size, leaf, path: proof.hashes.clone() };
    inclusion.check(&checkpoint).map_err(|error| error.to_string())?;
    Ok(checkpoint.size)
}
