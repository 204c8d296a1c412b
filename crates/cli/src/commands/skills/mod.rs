//! `palyra skills …`: making, signing, installing and running skills.
//!
//! Guarantees: nothing here grants anything that was not named on the command line. What makes a package needs no daemon.

mod asking;
mod build;
mod dev;
mod difference;
mod directory;
mod distrust;
mod doubts;
mod grant;
mod granting;
mod inspect;
mod install;
mod key;
mod keygen;
mod list;
mod new;
mod pack;
mod publishers;
mod quarantine;
mod release;
mod remove;
mod replay;
mod run;
mod show;
mod sign;
mod template;
mod test;
mod trust;
mod unknown;
mod words;

use clap::Subcommand;

use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum SkillsCommand {
    /// Start a skill of your own, from a template.
    New(new::NewArgs),
    /// Run what `[build]` in skill.toml says.
    Build(build::BuildArgs),
    /// Run the cases in tests/ of a skill, without a daemon.
    Test(test::TestArgs),
    /// Make the package of a skill.
    Pack(pack::PackArgs),
    /// Make a key to sign packages with.
    Keygen(keygen::KeygenArgs),
    /// Sign a package.
    Sign(sign::SignArgs),
    /// Tell what is in a package, what it asks for, and who signed it. Needs no daemon.
    Inspect(inspect::InspectArgs),
    /// Install a package, or update what is installed.
    Install(install::InstallArgs),
    /// List what is installed.
    List,
    /// Tell everything about an installed skill.
    Show(show::ShowArgs),
    /// Say what a skill may use.
    Grant(grant::GrantArgs),
    /// Call a tool of a skill, and print what came of it.
    Run(run::RunArgs),
    /// Run a call of a skill once more, from what was recorded. Exits 7 if something else comes out.
    Replay(replay::ReplayArgs),
    /// Keep a skill from running, and stop it where it runs.
    Quarantine(quarantine::QuarantineArgs),
    /// Let a skill run again that was in quarantine.
    Release(release::ReleaseArgs),
    /// Remove a skill, and what it kept.
    Remove(remove::RemoveArgs),
    /// Let a key speak for a publisher.
    Trust(trust::TrustArgs),
    /// Let a key speak for a publisher no more.
    Distrust(distrust::DistrustArgs),
    /// List the publishers that are trusted, and their keys.
    Publishers,
    /// Build, pack and install a skill again whenever its files change. Needs `development = true` under [skills].
    Dev(dev::DevArgs),
}

pub(crate) fn run(command: SkillsCommand, at: &At, terminal: &Terminal) -> Outcome {
    match command {
        SkillsCommand::New(args) => new::run(&args, terminal),
        SkillsCommand::Build(args) => build::run(&args, terminal),
        SkillsCommand::Test(args) => test::run(&args, terminal),
        SkillsCommand::Pack(args) => pack::run(&args, terminal),
        SkillsCommand::Keygen(args) => keygen::run(&args, terminal),
        SkillsCommand::Sign(args) => sign::run(&args, terminal),
        SkillsCommand::Inspect(args) => inspect::run(&args, terminal),
        SkillsCommand::Run(args) => run::run(&args, at, terminal),
        SkillsCommand::Dev(args) => dev::run(&args, at, terminal),
        asked => meet(at, terminal, async |daemon| match asked {
            SkillsCommand::Install(args) => install::run(&args, daemon, terminal).await,
            SkillsCommand::Show(args) => show::run(&args, daemon, terminal).await,
            SkillsCommand::Grant(args) => grant::run(&args, daemon, terminal).await,
            SkillsCommand::Replay(args) => replay::run(&args, daemon, terminal).await,
            SkillsCommand::Quarantine(args) => quarantine::run(&args, daemon, terminal).await,
            SkillsCommand::Release(args) => release::run(&args, daemon, terminal).await,
            SkillsCommand::Remove(args) => remove::run(&args, daemon, terminal).await,
            SkillsCommand::Trust(args) => trust::run(&args, daemon, terminal).await,
            SkillsCommand::Distrust(args) => distrust::run(&args, daemon, terminal).await,
            SkillsCommand::Publishers => publishers::run(daemon, terminal).await,
            _ => list::run(daemon, terminal).await,
        }),
    }
}

const EXAMPLES: &str = "\
Examples:
  palyra skills new acme/hello             makes ./hello, a skill in Rust that works
  palyra skills test                       in there: builds it and runs the cases in tests/
  palyra skills keygen                     once: your key as a publisher
  palyra skills pack && palyra skills sign hello-0.1.0.skill
  palyra skills trust acme publisher.pub   on the machine that is to run it
  palyra skills install hello-0.1.0.skill
  palyra skills run acme/hello count '{\"text\": \"Tea, or coffee?\"}'";
