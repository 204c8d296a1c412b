//! `palyra skills install`: installs a package, or updates what is installed.
//!
//! Guarantees: who signed it and what it asks for is shown before it is installed. Nothing is granted but what the command line names; an update
//! keeps what was granted, and nothing that is new.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_api::skill::{NewSkill, SignatureState, Skill, SkillInspection};
use palyra_client::{Client, skills::new_skill};
use palyra_package::Grants;
use serde::Serialize;

use super::{
    asking::{granted_to, sentences, tell_the_rest, told},
    granting::GrantFlags,
    sign::{read, signature_file},
    trust::public_key,
    words::{fields, infinitive, may, quoted, wished},
};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{BAD, DIM, GOOD, Terminal, WAIT, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InstallArgs {
    /// The package.
    #[arg(value_name = "FILE.skill")]
    file: PathBuf,
    /// Its signature. Without it, FILE.skill.minisig.
    #[arg(long, value_name = "FILE.minisig", conflicts_with = "dev")]
    signature: Option<PathBuf>,
    #[command(flatten)]
    grants: GrantFlags,
    /// Let this key count from now on, if nothing is known of the publisher: a .pub file that came with the package, or the line of base64 in
    /// one. Needs `trust_on_first_use = true` under [skills].
    #[arg(long, value_name = "KEY", conflicts_with = "dev")]
    trust_on_first_use: Option<String>,
    /// Install it although a later version is installed.
    #[arg(long)]
    allow_downgrade: bool,
    /// Install it without a signature, to work on it. Needs `development = true` under [skills].
    #[arg(long)]
    dev: bool,
}

#[derive(Serialize)]
struct Report {
    inspection: SkillInspection,
    skill: Skill,
}

pub(super) async fn run(args: &InstallArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let (archive, package) = read(&args.file)?;
    let mut new = new_skill(&archive, args.signature()?);
    let first = args.trust_on_first_use.as_deref().map(public_key).transpose()?;
    new.trust_on_first_use = first.map(|key| key.to_string());
    new.allow_downgrade = args.allow_downgrade;
    new.development = args.dev;
    let inspection = daemon.inspect_skill(&new).await?;
    if !terminal.json {
        tell(&inspection, terminal);
    }
    if args.grants.are_given() {
        let before = match &inspection.installed {
            Some(_) => granted_to(&daemon.skill(&inspection.id).await?)?.kept_for(&package.manifest.capabilities),
            None => Grants::default(),
        };
        new.grants = Some(told(&args.grants.over(before, &package.manifest.capabilities)?)?);
    }
    if !terminal.json {
        terminal.talk("compiling and installing …");
    }
    let skill = daemon.install_skill(&new).await.map_err(|error| args.advised(error.into(), &inspection))?;
    if terminal.json {
        terminal.document("skill.installed", Report { inspection, skill });
        return Ok(Exit::Ok);
    }
    let word = match &inspection.installed {
        Some(before) => format!("✔ updated from {}", shown(before)),
        None => "✔ installed".to_owned(),
    };
    terminal.out(format!("{} {} {}", terminal.paint(GOOD, &word), shown(skill.id.as_str()), shown(&skill.version)));
    may(&sentences(&skill.may), terminal);
    let tools: Vec<String> = skill.tools.iter().map(|tool| tool.name.to_string()).collect();
    fields("tools", &tools, terminal);
    tell_the_rest(&skill, terminal)?;
    Ok(Exit::Ok)
}

impl InstallArgs {
    /// The signature, if there is one. What was named has to be there.
    fn signature(&self) -> Result<Option<String>, Failure> {
        if self.dev {
            return Ok(None);
        }
        let unreadable = |path: &Path, error: &std::io::Error| {
            let what = format!("the signature {} cannot be read", path.display());
            let help = "name the .minisig file that belongs to the package";
            Failure::new(Exit::Usage, "unreadable", what, error.to_string(), help)
        };
        match &self.signature {
            Some(path) => fs::read_to_string(path).map(Some).map_err(|error| unreadable(path, &error)),
            None => match fs::read_to_string(signature_file(&self.file)) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(unreadable(&signature_file(&self.file), &error)),
            },
        }
    }

    /// A refusal with the command that helps about it.
    fn advised(&self, failure: Failure, inspection: &SkillInspection) -> Failure {
        let publisher = inspection.id.as_str().split('/').next().unwrap_or_default();
        let file = quoted(&self.file.display().to_string());
        let help = match inspection.signature.state {
            SignatureState::Unsigned => {
                format!("sign it: `palyra skills sign {file}`; or name its signature with --signature")
            }
            SignatureState::UnknownPublisher => format!(
                "if you know the publisher's key: `palyra skills trust {} KEY.pub`, then install it again",
                shown(publisher)
            ),
            SignatureState::Trusted | SignatureState::Refused => return failure,
        };
        // Only about signatures: policy, limits and versions have advice of their own.
        match failure.code.as_ref() {
            "unsigned" | "unknown_publisher" | "untrusted" | "unknown_key" => Failure { help, ..failure },
            _ => failure,
        }
    }
}

/// What installing it would mean, as talk.
fn tell(inspection: &SkillInspection, terminal: &Terminal) {
    let title = format!("{} {}", shown(inspection.id.as_str()), shown(&inspection.version));
    let update = inspection.installed.as_deref().map(|version| format!(", in the place of {}", shown(version)));
    terminal.talk_rows(format!("{title}{}", update.unwrap_or_default()));
    let signature = shown(&inspection.signature.words);
    let line = match inspection.signature.state {
        SignatureState::Trusted => terminal.paint_err(GOOD, &format!("✔ {signature}")),
        SignatureState::Unsigned | SignatureState::UnknownPublisher => {
            terminal.paint_err(WAIT, &format!("! {signature}"))
        }
        SignatureState::Refused => terminal.paint_err(BAD, &format!("✖ {signature}")),
    };
    let field = |title: &str, text: &str| {
        terminal.talk_rows(format!("  {} {text}", terminal.paint_err(DIM, &format!("{title:<10}"))));
    };
    field("signed", &line);
    let (title, wishes) = wished(&sentences(&inspection.asks));
    let added: Vec<String> = sentences(&inspection.added).iter().map(|one| infinitive(one)).collect();
    for (number, wish) in wishes.iter().enumerate() {
        let is_new = inspection.installed.is_some() && added.contains(wish);
        let text = if is_new { terminal.paint_err(WAIT, &format!("+ {wish}")) } else { wish.clone() };
        field(if number == 0 { title } else { "" }, &text);
    }
    if inspection.installed.is_some() {
        sentences(&inspection.removed).iter().for_each(|gone| field("", &format!("- {}", infinitive(gone))));
        if !inspection.added.is_empty() {
            field("", "what is marked + is new, and is not granted by an update");
        }
    }
}

/// A package that goes without a signature, because somebody works on it.
pub(super) fn developed(archive: &[u8]) -> NewSkill {
    NewSkill { development: true, allow_downgrade: true, ..new_skill(archive, None) }
}

const EXAMPLES: &str = "\
Examples:
  palyra skills install hello-0.1.0.skill            grants nothing, and says what it asks for
  palyra skills install web-extract-0.1.0.skill --grant http=example.org:443 --grant secret:token=github
  palyra skills install notes-0.2.0.skill --grant-all --grant files:notes=docs:read";
