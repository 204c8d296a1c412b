//! `palyra skills inspect`: what is in a package, read here. Needs no daemon.
//!
//! Does not: say whether a publisher is trusted. That is the daemon's to say when the package is installed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_package::{Manifest, Need, Package, PublisherKey, Required, signature};
use palyra_types::{
    Sha256Digest,
    visible::{visible, visible_block},
};
use serde::Serialize;

use super::{
    key::{default_file, public_file},
    sign::{read, signature_file},
    trust::public_key,
    words::{asks, bytes, field, fields, limits},
};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{BOLD, GOOD, Terminal, WAIT},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// The package.
    #[arg(value_name = "FILE.skill")]
    file: PathBuf,
    /// Its signature. Without it, FILE.skill.minisig if that is there.
    #[arg(long, value_name = "FILE.minisig")]
    signature: Option<PathBuf>,
    /// The public key that is to have signed it, or the file of one. Exits 7 if another did, or nobody.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    file: &'a Path,
    bytes: usize,
    package_sha256: Sha256Digest,
    component_sha256: Sha256Digest,
    manifest: &'a Manifest,
    required: &'a Required,
    asks: Vec<String>,
    signature: Option<&'a Signed>,
    cases: Vec<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skill_md: Option<&'a str>,
}

/// What is known of the signature.
#[derive(Serialize)]
struct Signed {
    /// The id of the key that it says it was made with.
    key_id: String,
    /// Whether that was verified, by a key that was named or is one's own.
    verified: bool,
    /// What the signer wrote beside it, if it was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
}

pub(super) fn run(args: &InspectArgs, terminal: &Terminal) -> Outcome {
    let (archive, package) = read(&args.file)?;
    let signed = args.signed(&archive)?;
    if terminal.json {
        terminal.document("skill.package", report(args, archive.len(), (&package, signed.as_ref())));
        return Ok(Exit::Ok);
    }
    tell(&package, archive.len(), terminal);
    match &signed {
        None => field("signature", &terminal.paint(WAIT, "! none"), terminal),
        Some(Signed { key_id, verified: true, comment }) => {
            let comment = comment.as_deref().map(visible).unwrap_or_default();
            field("signature", &format!("{} by key {key_id}: {comment}", terminal.paint(GOOD, "✔ fits,")), terminal);
        }
        Some(Signed { key_id, .. }) => {
            let line = format!("says key {key_id}; not verified here, `--key KEY` does that");
            field("signature", &line, terminal);
        }
    }
    if let Some(prose) = &package.skill_md {
        terminal.out(terminal.paint(BOLD, "  SKILL.md"));
        visible_block(prose).trim_end().split('\n').for_each(|line| terminal.out(format!("    {line}")));
    }
    Ok(Exit::Ok)
}

impl InspectArgs {
    /// What is known of the signature; a key that was named has to have made it.
    fn signed(&self, archive: &[u8]) -> Result<Option<Signed>, Failure> {
        let what = || format!("{} is not verified", self.file.display());
        let beside = self.signature.clone().unwrap_or_else(|| signature_file(&self.file));
        let text = match fs::read_to_string(&beside) {
            Ok(text) => text,
            Err(_) if self.signature.is_none() && self.key.is_none() => return Ok(None),
            Err(error) => {
                let cause = format!("{}: {error}", beside.display());
                let help = "name its signature: --signature FILE.minisig";
                return Err(Failure::new(Exit::Unverified, "no_signature", what(), cause, help));
            }
        };
        let refused = |error: signature::SignatureError| {
            Failure::new(Exit::Unverified, "bad_signature", what(), error.to_string(), error.advice())
        };
        let key_id = signature::signer_of(&text).map_err(refused)?;
        if let Some(key) = &self.key {
            let verified = signature::verify(archive, &text, &public_key(key)?).map_err(refused)?;
            return Ok(Some(Signed { key_id, verified: true, comment: Some(verified.comment().to_owned()) }));
        }
        // One's own signature can be verified without being told by which key.
        let own = own_key().and_then(|key| signature::verify(archive, &text, &key).ok());
        let comment = own.as_ref().map(|verified| verified.comment().to_owned());
        Ok(Some(Signed { key_id, verified: own.is_some(), comment }))
    }
}

/// The public key of whoever works here, if they have one.
pub(super) fn own_key() -> Option<PublisherKey> {
    let file = public_file(&default_file().ok()?);
    PublisherKey::parse(&fs::read_to_string(file).ok()?).ok()
}

fn tell(package: &Package, size: usize, terminal: &Terminal) {
    let manifest = &package.manifest;
    let size = bytes(u64::try_from(size).unwrap_or(u64::MAX));
    terminal.out(terminal.paint(BOLD, &format!("{} {}", manifest.id, manifest.version)));
    field("summary", &visible(&manifest.summary), terminal);
    if let Some(text) = &manifest.description {
        fields("about", &visible_block(text).lines().map(str::to_owned).collect::<Vec<_>>(), terminal);
    }
    field("license", &visible(&manifest.license), terminal);
    if let Some(page) = &manifest.homepage {
        field("homepage", &visible(page), terminal);
    }
    field("package", &format!("{size}, {}", package.digest), terminal);
    let program = format!("a {} of {}, {}", package.required.form, package.required.world, package.component_digest);
    field("program", &program, terminal);
    let tool = |tool: &palyra_package::SkillTool| format!("{}: {}", tool.name, visible(&tool.summary));
    fields("tools", &manifest.tools.iter().map(tool).collect::<Vec<_>>(), terminal);
    asks(&manifest.capabilities.words(), terminal);
    let needs = package.required.imports.iter().filter(|(_, need)| **need != Need::Free);
    let needs: Vec<String> = needs.map(|(import, need)| format!("{} (needs {need})", visible(import))).collect();
    fields("imports", &if needs.is_empty() { vec!["nothing that needs a grant".to_owned()] } else { needs }, terminal);
    fields("a call", &limits(&manifest.limits), terminal);
    field("cases", &package.golden.len().to_string(), terminal);
}

fn report<'a>(
    args: &'a InspectArgs,
    bytes: usize,
    (package, signature): (&'a Package, Option<&'a Signed>),
) -> Report<'a> {
    Report {
        file: &args.file,
        bytes,
        package_sha256: package.digest,
        component_sha256: package.component_digest,
        manifest: &package.manifest,
        required: &package.required,
        asks: package.manifest.capabilities.words(),
        signature,
        cases: package.golden.keys().collect(),
        skill_md: package.skill_md.as_deref(),
    }
}

const EXAMPLES: &str = "\
Examples:
  palyra skills inspect hello-0.1.0.skill
  palyra skills inspect hello-0.1.0.skill --key acme.pub";
