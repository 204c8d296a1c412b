//! `palyra skills dev`: builds, packs and installs a skill again whenever its files change.
//!
//! Guarantees: what is installed so is marked as in development, which the daemon takes only where its configuration says so. What was granted stays;
//! nothing is granted but what the command line names.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use palyra_api::skill::Skill;
use palyra_client::Client;
use palyra_package::Grants;
use palyra_types::{Clock, clock::SystemClock};
use serde::Serialize;

use super::{
    asking::{tell_the_rest, told},
    directory::{Mark, SkillDirectory},
    granting::GrantFlags,
    install::developed,
};
use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    report,
    terminal::{DIM, GOOD, Terminal, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevArgs {
    /// The directory of the skill.
    #[arg(default_value = ".", hide_default_value = true)]
    directory: PathBuf,
    #[command(flatten)]
    grants: GrantFlags,
}

#[derive(Serialize)]
struct Reloaded {
    at: palyra_types::Timestamp,
    milliseconds: u64,
    build_milliseconds: u64,
    skill: Skill,
}

pub(super) fn run(args: &DevArgs, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        // A first build leaves files behind, such as a lock file: watching begins behind it.
        let mut mark = None;
        let mut is_first = true;
        loop {
            match reload(args, daemon).await {
                Ok(reloaded) => {
                    tell(&reloaded, is_first, terminal)?;
                    is_first = false;
                }
                // What no change of a file mends ends it. A daemon that was there may come back.
                Err(failure) if is_final(&failure) && (is_first || failure.exit != Exit::Unreachable) => {
                    return Err(failure);
                }
                Err(failure) if terminal.json => report::failure(&failure, terminal),
                Err(failure) => report::failure_to(&failure, &mut |line| terminal.talk(line), terminal),
            }
            let last = mark.take().unwrap_or_else(|| marked(args));
            tokio::select! {
                changed = changed(args, last) => mark = Some(changed),
                _ = tokio::signal::ctrl_c() => {
                    terminal.talk("stopped; what was installed last stays");
                    return Ok(Exit::Interrupted);
                }
            }
        }
    })
}

/// Builds, packs and installs what is there now.
async fn reload(args: &DevArgs, daemon: &Client) -> Result<Reloaded, Failure> {
    let begun = Instant::now();
    let skill = SkillDirectory::open(&args.directory)?;
    let build = skill.build()?.unwrap_or_default();
    let built = skill.package()?;
    let mut new = developed(&built.archive);
    if args.grants.are_given() {
        let asked = &built.package.manifest.capabilities;
        new.grants = Some(told(&args.grants.over(Grants::default(), asked)?)?);
    }
    let skill = daemon.install_skill(&new).await?;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let at = SystemClock::new().now();
    Ok(Reloaded { at, milliseconds: millis(begun.elapsed()), build_milliseconds: millis(build), skill })
}

/// Waits until a file is another one, and nothing changes any more.
async fn changed(args: &DevArgs, mark: Mark) -> Mark {
    let mut last = mark;
    let mut is_changing = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = marked(args);
        match (now == last, is_changing) {
            (true, true) => return now,
            (true, false) => {}
            (false, _) => {
                is_changing = true;
                last = now;
            }
        }
    }
}

/// What the directory is like now. Where skill.toml says nothing of use, everything in it counts.
fn marked(args: &DevArgs) -> Mark {
    let made = SkillDirectory::open(&args.directory).ok().and_then(|skill| skill.made());
    Mark::of(&args.directory, made.as_deref())
}

fn tell(reloaded: &Reloaded, is_first: bool, terminal: &Terminal) -> Result<(), Failure> {
    if terminal.json {
        terminal.line("skill.reloaded", reloaded);
        return Ok(());
    }
    let Reloaded { at, milliseconds, build_milliseconds, skill } = reloaded;
    let time = at.to_string();
    let time = time.split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or_default();
    terminal.out(format!(
        "{} {} {} in {milliseconds} ms {}",
        terminal.paint(DIM, time),
        terminal.paint(GOOD, "✔ loaded"),
        format_args!("{} {}", shown(skill.id.as_str()), shown(&skill.version)),
        terminal.paint(DIM, &format!("({build_milliseconds} ms of it to build)"))
    ));
    if is_first {
        tell_the_rest(skill, terminal)?;
        terminal.talk("watching; Ctrl-C stops");
    }
    Ok(())
}

fn is_final(failure: &Failure) -> bool {
    failure.exit == Exit::Unreachable || failure.exit == Exit::Denied || FINAL.contains(&failure.code.as_ref())
}

/// What is no fault of the skill.
const FINAL: &[&str] =
    &["no_skill", "not_configured", "skills_closed", "other_origin", "missing_scope", "cannot_grant"];
const LOOK_EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  palyra skills dev                        in the directory of the skill
  palyra skills dev skills/hello --grant-all --grant secret:token=github";
