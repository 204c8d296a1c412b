//! The directory of a skill's author: what is in it, how its program is built, and the package that it makes.
//!
//! Guarantees: what a build prints goes to standard error. What a package is made of is read here and judged by the package itself.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use palyra_package::{
    Built, Manifest, Need, Package, PackageError, Sources, imports::Missing, manifest::BuildRecipe, package::MANIFEST,
};
use palyra_types::visible::visible;

use crate::{exit::Exit, failure::Failure, terminal::Terminal};

/// The directory of a skill.
#[derive(Debug)]
pub(super) struct SkillDirectory {
    root: PathBuf,
    sources: Sources,
}

impl SkillDirectory {
    /// Opens a directory that holds a skill.toml.
    pub(super) fn open(root: &Path) -> Result<Self, Failure> {
        let path = root.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(|error| {
            let what = format!("there is no skill in {}", root.display());
            let help = "name the directory of a skill, or start one: `palyra skills new PUBLISHER/NAME`";
            Failure::new(Exit::Usage, "no_skill", what, format!("{}: {error}", path.display()), help)
        })?;
        let sources = Sources::of(&text).map_err(|error| refused(root, &error.into(), None))?;
        Ok(Self { root: root.to_owned(), sources })
    }

    /// How its program is built, if it says so.
    const fn recipe(&self) -> Option<&BuildRecipe> {
        self.sources.recipe()
    }

    /// Where its program is.
    pub(super) fn program(&self) -> PathBuf {
        self.root.join(self.sources.program())
    }

    /// Says how its program is built, and builds it.
    pub(super) fn build_aloud(&self, terminal: &Terminal) -> Result<Option<Duration>, Failure> {
        if let Some(recipe) = self.recipe() {
            terminal.talk(format!("building: {}", visible(&recipe.command.join(" "))));
        }
        self.build()
    }

    /// Builds its program, if it says how. Says how long that took.
    pub(super) fn build(&self) -> Result<Option<Duration>, Failure> {
        let Some(recipe) = self.recipe() else { return Ok(None) };
        let Some((program, arguments)) = recipe.command.split_first() else { return Ok(None) };
        let begun = Instant::now();
        #[expect(
            clippy::disallowed_methods,
            reason = "an author has their own command run on their own machine, as make would"
        )]
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root).stdin(Stdio::null()).stdout(io::stderr());
        let what = || format!("the program of the skill in {} cannot be built", self.root.display());
        let status = command.status().map_err(|error| {
            let cause = format!("`{program}`: {error}");
            let help = "install it, or correct `command` under [build] in skill.toml";
            Failure::new(Exit::Failure, "build_failed", what(), cause, help)
        })?;
        if !status.success() {
            let help = "read what it says above, and correct that";
            return Err(Failure::new(Exit::Failure, "build_failed", what(), format!("`{program}`: {status}"), help));
        }
        Ok(Some(begun.elapsed()))
    }

    /// The files that a package of it is made of, by their path from here.
    pub(super) fn files(&self) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
        let mut files = BTreeMap::new();
        let unreadable = |path: &Path, error: &io::Error| {
            let what = format!("{} cannot be read", path.display());
            Failure::new(Exit::Failure, "unreadable", what, error.to_string(), "check its permissions")
        };
        let mut places = vec![(self.root.clone(), String::new())];
        while let Some((place, within)) = places.pop() {
            for entry in fs::read_dir(&place).map_err(|error| unreadable(&place, &error))? {
                let entry = entry.map_err(|error| unreadable(&place, &error))?;
                // What has a name that is no text has no place in a package.
                let Ok(own) = entry.file_name().into_string() else { continue };
                let (path, name) = (entry.path(), format!("{within}{own}"));
                // A link to a directory may lead anywhere, and round in circles; a link to a license is common.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if !is_left_behind(&own) {
                        places.push((path, format!("{name}/")));
                    }
                } else if path.is_file() && self.sources.wants(&name) {
                    files.insert(name, fs::read(&path).map_err(|error| unreadable(&path, &error))?);
                }
            }
        }
        let program = self.program();
        match fs::read(&program) {
            Ok(content) => files.insert(self.sources.program().to_owned(), content),
            Err(error) => {
                let what = format!("the skill in {} has no program", self.root.display());
                let help = match self.recipe() {
                    Some(_) => "build it: `palyra skills build`; or correct `output` under [build] in skill.toml",
                    None => "put it there, or say under [build] in skill.toml how it is made",
                };
                let cause = format!("{}: {error}", program.display());
                return Err(Failure::new(Exit::Failure, "no_program", what, cause, help));
            }
        };
        Ok(files)
    }

    /// The package that it makes.
    pub(super) fn package(&self) -> Result<Built, Failure> {
        self.package_of(self.files()?)
    }

    /// The package that these files make.
    pub(super) fn package_of(&self, files: BTreeMap<String, Vec<u8>>) -> Result<Built, Failure> {
        let manifest = files.get(MANIFEST).and_then(|bytes| {
            let text = std::str::from_utf8(bytes).ok()?;
            Manifest::parse(text, |name| files.get(name).map(Vec::as_slice)).ok()
        });
        Package::build(files).map_err(|error| refused(&self.root, &error, manifest.as_ref()))
    }

    /// What its build makes, if it has one.
    pub(super) fn made(&self) -> Option<PathBuf> {
        self.recipe().map(|_| self.program())
    }
}

/// What the files of a directory are like at a moment, for whoever waits until they are otherwise.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mark(BTreeMap<PathBuf, Option<(SystemTime, u64)>>);

impl Mark {
    /// The mark of what is there now, but for what was made from it.
    pub(super) fn of(root: &Path, made: Option<&Path>) -> Self {
        let mut files = BTreeMap::new();
        let mut places = vec![root.to_owned()];
        while let Some(place) = places.pop() {
            for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
                let path = entry.path();
                let is_package = path.extension().is_some_and(|ending| ending == "skill");
                if is_left_behind(&entry.file_name().to_string_lossy()) || made == Some(path.as_path()) || is_package {
                    continue;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    places.push(path);
                } else {
                    let changed = entry.metadata().and_then(|about| Ok((about.modified()?, about.len())));
                    files.insert(path, changed.ok());
                }
            }
        }
        Self(files)
    }
}

/// Why a directory makes no package.
fn refused(root: &Path, error: &PackageError, manifest: Option<&Manifest>) -> Failure {
    let what = format!("the skill in {} cannot be packed", root.display());
    match error {
        PackageError::AsksForLess(missing) => {
            let imports: Vec<String> =
                missing.iter().flat_map(|one| &one.imports).map(|one| format!("`{one}`")).collect();
            let cause = format!("skill.toml asks for less than its program imports: {}", imports.join(", "));
            let lines = lines_to_add(missing, manifest);
            let help = format!("put under [capabilities] in skill.toml:\n         {}", lines.join("\n         "));
            Failure::new(Exit::Failure, "asks_for_less", what, cause, help)
        }
        error => Failure::new(Exit::Failure, "package_invalid", what, error.to_string(), error.advice()),
    }
}

/// The lines that are missing in a manifest. What is inert is one line, with what it holds already.
fn lines_to_add(missing: &[Missing], manifest: Option<&Manifest>) -> Vec<String> {
    let is_inert = |need: Need| matches!(need, Need::InertFilesystem | Need::InertSockets | Need::InertHttp);
    let plain = missing.iter().filter(|one| !is_inert(one.need)).map(|one| one.need.line().to_owned());
    let mut lines: Vec<String> = plain.collect();
    if missing.iter().any(|one| is_inert(one.need)) {
        let known = manifest.map(|manifest| manifest.capabilities.inert.clone()).unwrap_or_default();
        let new = missing.iter().filter(|one| is_inert(one.need)).map(|one| one.need.as_str().to_owned());
        let all: std::collections::BTreeSet<String> = known.into_iter().chain(new).collect();
        let all: Vec<String> = all.iter().map(|one| format!("\"{one}\"")).collect();
        lines.push(format!("inert = [{}]", all.join(", ")));
    }
    lines
}

/// Whether a name is hidden, or one of those that builds leave behind.
fn is_left_behind(name: &str) -> bool {
    name.starts_with('.') || LEFT_BEHIND.contains(&name)
}

/// Where builds put what they make, and fetch what they need.
const LEFT_BEHIND: &[&str] = &["target", "node_modules", "__pycache__"];

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(need: Need) -> Missing {
        Missing { need, imports: vec!["an import".to_owned()] }
    }

    #[test]
    fn every_missing_line_is_named_once_and_what_is_inert_stands_on_one() {
        let all = [missing(Need::Clock), missing(Need::InertFilesystem), missing(Need::InertSockets)];
        let lines = lines_to_add(&all, None);
        assert_eq!(lines, ["clock = true", "inert = [\"wasi:filesystem\", \"wasi:sockets\"]"]);
        let text = format!("{MINIMAL}\n[capabilities]\ninert = [\"wasi:http\"]\n");
        let manifest = Manifest::parse(&text, |_| None).unwrap();
        let lines = lines_to_add(&[missing(Need::InertSockets)], Some(&manifest));
        assert_eq!(lines, ["inert = [\"wasi:http\", \"wasi:sockets\"]"]);
    }

    #[test]
    fn a_mark_changes_with_the_sources_and_not_with_what_is_built() {
        let root = tempfile::tempdir().unwrap();
        let recipe = "[build]\ncommand = [\"make\"]\noutput = \"skill.wasm\"\n";
        fs::write(root.path().join(MANIFEST), format!("{MINIMAL}{recipe}")).unwrap();
        let skill = SkillDirectory::open(root.path()).unwrap();
        let mark = || Mark::of(root.path(), skill.made().as_deref());
        let before = mark();
        fs::create_dir(root.path().join("target")).unwrap();
        for built in ["target/out", "skill.wasm", "a-0.1.0.skill", ".git"] {
            fs::write(root.path().join(built), "built").unwrap();
        }
        assert_eq!(mark(), before);
        fs::create_dir(root.path().join("src")).unwrap();
        fs::write(root.path().join("src/lib.rs"), "new").unwrap();
        assert_ne!(mark(), before);
    }

    #[test]
    fn a_directory_without_a_skill_is_refused_and_one_without_a_program_says_where_it_belongs() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(SkillDirectory::open(root.path()).unwrap_err().code, "no_skill");
        fs::write(root.path().join(MANIFEST), MINIMAL).unwrap();
        let failure = SkillDirectory::open(root.path()).unwrap().package().unwrap_err();
        assert_eq!(failure.code, "no_program");
        assert!(failure.cause.contains("skill.wasm"), "{}", failure.cause);
    }

    const MINIMAL: &str = "id = \"acme/a\"\nversion = \"0.1.0\"\npublisher = \"acme\"\nlicense = \"MIT\"\nsummary = \"A skill.\"\n[[tool]]\nname = \"t\"\nsummary = \"A tool.\"\ninput = { type = \"object\" }\n";
}
