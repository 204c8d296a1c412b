//! Skills: packages of WebAssembly whose tools stand beside the built-in ones.
//!
//! | you look for | read |
//! |---|---|
//! | what skills may have at the most | [`policy`] |
//! | installing, granting, quarantine, removing | [`administration`] |
//! | what is ready to run, and how it gets there | `shelf`, [`compiling`] |
//! | a tool of a skill, read into what would be done | `tool` |
//! | a call of one | `run`, `host`, `files` |
//! | a call once more, from what was recorded | [`replay`] |
//! | the golden cases of a package, without a daemon | [`rehearsal`] |
//!
//! Guarantees: a tool of a skill is decided about, asked about, run and attested as any other. What a skill reaches, it reaches through the
//! call's own door, workspace and secrets.

pub mod administration;
pub mod compiling;
mod files;
mod host;
pub mod policy;
pub mod rehearsal;
pub mod replay;
pub(crate) mod run;
mod shelf;
pub(crate) mod tool;

pub use administration::{Inspection, Installation, OpeningSkills, SkillRefusal, Standing};
pub use compiling::{COMPILE_ARGUMENT, CompilingError, SkillCompiler};
pub use palyra_skills::{
    compile::child_main,
    outcome::{LogLine, SkillFailure, SkillUsage},
    recording::{RecordedCall, Recording},
    store::{ChangeDescription, InstallOptions, InstalledSkill, Quarantine, SkillSnapshot, StoreError},
};
pub use policy::{SkillCapability, WasmPluginRunnerPolicy};
pub use replay::Replayed;
pub use run::TIER_A_EXECUTOR;
pub use shelf::{ShelfClosed, SkillShelf, SkillsGround};
