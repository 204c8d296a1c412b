//! `palyra skills build`: runs what `[build]` of a skill says.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{directory::SkillDirectory, words::bytes};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BuildArgs {
    /// The directory of the skill.
    #[arg(default_value = ".", hide_default_value = true)]
    directory: PathBuf,
}

#[derive(Serialize)]
struct Report {
    program: PathBuf,
    bytes: u64,
    milliseconds: u64,
}

pub(super) fn run(args: &BuildArgs, terminal: &Terminal) -> Outcome {
    let skill = SkillDirectory::open(&args.directory)?;
    let Some(took) = skill.build_aloud(terminal)? else {
        let cause = "there is no [build] in its skill.toml";
        let help = "write `[build]`, `command = [\"cargo\", \"build\"]` and `output = \"target/skill.wasm\"`";
        return Err(Failure::new(Exit::Usage, "no_build", "it is not said how the skill is built", cause, help));
    };
    let program = skill.program();
    let bytes_made = std::fs::metadata(&program).map(|about| about.len()).map_err(|error| {
        let cause = format!("{}: {error}", program.display());
        let help = "correct `output` under [build] in skill.toml";
        Failure::new(Exit::Failure, "no_program", "the build made no program", cause, help)
    })?;
    if terminal.json {
        let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        terminal.document("skill.build", Report { program, bytes: bytes_made, milliseconds });
        return Ok(Exit::Ok);
    }
    let (size, seconds) = (bytes(bytes_made), took.as_secs_f32());
    terminal.out(format!("{} {}, {size}, in {seconds:.1} s", terminal.paint(GOOD, "✔ built"), program.display()));
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills build
  palyra skills build skills/hello";
