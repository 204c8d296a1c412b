//! The architecture as a test: which crate may depend on which, and what every crate and every source file has in common.
//!
//! Each rule is a table and a pure function from what is there to what is wrong with it, so each is shown to fail here as well.
//! `deny.toml` states the reserved crates once more, for cargo-deny; the two are kept equal.
//! Does not: build or download anything. `cargo metadata` reads the manifests, and that is all.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::MetadataCommand;
use serde::Deserialize;

/// What a crate may depend on within the workspace. Arrows point down only.
enum Reach {
    Only(&'static [&'static str]),
    Anything,
}

const REACH: &[(&str, Reach)] = &[
    ("palyra-types", Reach::Only(&[])),
    ("palyra-policy", Reach::Only(&["palyra-types"])),
    ("palyra-journal", Reach::Only(&["palyra-types"])),
    ("palyra-sandbox", Reach::Only(&["palyra-types"])),
    ("palyra-notebook", Reach::Only(&["palyra-types"])),
    ("palyra-package", Reach::Only(&["palyra-types"])),
    ("palyra-provider", Reach::Only(&["palyra-types"])),
    ("palyra-schedule", Reach::Only(&["palyra-types"])),
    ("palyra-upstream", Reach::Only(&["palyra-types"])),
    ("palyra-skills", Reach::Only(&["palyra-package", "palyra-types"])),
    ("palyra-vault", Reach::Only(&["palyra-types"])),
    ("palyra-identity", Reach::Only(&["palyra-types"])),
    ("palyra-access", Reach::Only(&["palyra-types"])),
    (
        "palyra-gate",
        Reach::Only(&[
            "palyra-policy",
            "palyra-journal",
            "palyra-package",
            "palyra-sandbox",
            "palyra-skills",
            "palyra-vault",
            "palyra-types",
        ]),
    ),
    ("palyra-api", Reach::Only(&["palyra-types"])),
    ("palyra-client", Reach::Only(&["palyra-api", "palyra-types"])),
    (
        "palyra-daemon",
        // The daemon takes the types of a decision from the policy crate, and opens the journal and tells its records; it decides and records
        // nothing itself. It finds out who holds the key of the vault, and names what is put there; the gate opens and changes it.
        Reach::Only(&[
            "palyra-api",
            "palyra-access",
            "palyra-identity",
            "palyra-gate",
            "palyra-journal",
            "palyra-notebook",
            "palyra-package",
            "palyra-policy",
            "palyra-provider",
            "palyra-schedule",
            "palyra-types",
            "palyra-upstream",
            "palyra-vault",
        ]),
    ),
    (
        "palyra-cli",
        // Whoever verifies a journal need not trust the daemon that wrote it, so the command line reads it itself. It is also what a device is
        // paired with, whose side of a pairing and whose key no daemon has. So it opens backups of the vault, whose keys no daemon has either.
        Reach::Only(&[
            "palyra-client",
            "palyra-api",
            "palyra-daemon",
            "palyra-identity",
            "palyra-journal",
            "palyra-package",
            "palyra-policy",
            "palyra-types",
            "palyra-vault",
        ]),
    ),
    ("palyra-tests", Reach::Anything),
    ("palyra-benches", Reach::Anything),
];

/// A crate, with all crates whose names continue its own after a dash, that only some workspace crates may depend on.
/// This binds crates that may reach anything, too.
struct Reserved {
    family: &'static str,
    wrappers: &'static [&'static str],
}

const RESERVED: &[Reserved] = &[
    Reserved { family: "palyra-sandbox", wrappers: &["palyra-gate"] },
    Reserved { family: "palyra-skills", wrappers: &["palyra-gate", "palyra-benches"] },
    Reserved { family: "cedar-policy", wrappers: &["palyra-policy", "palyra-benches"] },
    Reserved { family: "wasmtime", wrappers: &["palyra-skills", "palyra-benches"] },
];

/// Names that say nothing about what is inside.
const VAGUE: &[&str] = &["util", "utils", "helper", "helpers", "common", "manager"];

const LONGEST_FILE: usize = 800;

/// The one crate with an `unsafe` block, and the file that it is in.
const LOADS_CODE: &str = "palyra-skills";
const LOADING: &str = "crates/skills/src/artifact.rs";

const SOURCE_ROOTS: [&str; 3] = ["crates", "tests", "benches"];

#[test]
fn dependencies_point_down_only() -> Result<(), Box<dyn Error>> {
    assert_none(&against_the_arrows(&crates()?));
    Ok(())
}

#[test]
fn reserved_crates_are_used_by_their_wrappers_only() -> Result<(), Box<dyn Error>> {
    assert_none(&trespasses(&crates()?));
    Ok(())
}

#[test]
fn deny_toml_reserves_the_same_crates() -> Result<(), Box<dyn Error>> {
    let config: DenyToml = toml::from_str(&fs::read_to_string(root().join("deny.toml"))?)?;
    assert_none(&drift(&config.bans.deny));
    Ok(())
}

#[test]
fn every_crate_inherits_the_lints_of_the_workspace() -> Result<(), Box<dyn Error>> {
    assert_none(&without_lints(&crates()?));
    Ok(())
}

#[test]
fn compiled_code_is_loaded_in_one_place() -> Result<(), Box<dyn Error>> {
    let unsafe_blocks = |source: &Source| source.text.matches("unsafe {").count();
    let skills: Vec<Source> =
        sources()?.into_iter().filter(|source| source.path.starts_with("crates/skills/src")).collect();
    let found: Vec<_> = skills.iter().filter(|source| unsafe_blocks(source) > 0).map(|one| &one.path).collect();
    assert_eq!(found, [Path::new(LOADING)]);
    assert_eq!(skills.iter().map(unsafe_blocks).sum::<usize>(), 1);
    Ok(())
}

/// The examples carry the world with them, so that a copy of them builds anywhere.
#[test]
fn the_examples_are_built_for_the_world_that_the_host_has() -> Result<(), Box<dyn Error>> {
    let world = |path: &str| fs::read_to_string(root().join(path));
    assert_eq!(world("skills/wit/skill.wit")?, world("crates/skills/wit/v1/skill.wit")?);
    Ok(())
}

#[test]
fn every_source_file_opens_with_what_it_is_for() -> Result<(), Box<dyn Error>> {
    assert_none(&undocumented(&sources()?));
    Ok(())
}

#[test]
fn every_source_file_has_a_name_that_tells() -> Result<(), Box<dyn Error>> {
    assert_none(&vaguely_named(&sources()?));
    Ok(())
}

#[test]
fn no_source_file_is_too_long() -> Result<(), Box<dyn Error>> {
    assert_none(&too_long(&sources()?));
    Ok(())
}

/// A file that is no module of its program is not even compiled.
#[test]
fn every_file_of_a_program_of_tests_is_run() -> Result<(), Box<dyn Error>> {
    let sources = sources()?;
    let programs: Vec<_> = sources.iter().map(|source| source.path.as_path()).filter(|path| is_program(path)).collect();
    assert!(programs.contains(&Path::new("tests/tests/main.rs")) && programs.len() > 5, "{programs:?}");
    for program in programs {
        let text = fs::read_to_string(root().join(program))?;
        let modules: BTreeSet<_> =
            text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
        let of_it = |path: &&Path| path.parent() == program.parent() && path.file_name() != program.file_name();
        let files: BTreeSet<_> = sources
            .iter()
            .map(|one| one.path.as_path())
            .filter(of_it)
            .filter_map(|path| path.file_stem()?.to_str())
            .collect();
        let missing: Vec<_> = files.difference(&modules).collect();
        assert!(missing.is_empty(), "{} has no line for {missing:?}", program.display());
    }
    Ok(())
}

/// Whether a file is where a program of tests begins, one of many files.
fn is_program(path: &Path) -> bool {
    path.ends_with("main.rs") && path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn the_checks_see_every_crate_and_this_file() -> Result<(), Box<dyn Error>> {
    let names: BTreeSet<_> = crates()?.into_iter().map(|one| one.name).collect();
    assert!(names.is_superset(&set(["palyra-types", "palyra-policy", "palyra-cli", "palyra-tests"])), "{names:?}");
    assert!(sources()?.iter().any(|source| source.path == Path::new("tests/tests/architecture.rs")));
    Ok(())
}

#[test]
fn a_dependency_that_points_up_is_found() {
    let upwards = [crate_with("palyra-types", ["serde", "palyra-policy"]), crate_with("palyra-api", ["palyra-types"])];
    assert_eq!(
        against_the_arrows(&upwards),
        ["`palyra-types` may not depend on `palyra-policy`: move what it needs down into a crate that both may use, \
          or change `REACH` in tests/tests/architecture.rs and say why in ARCHITECTURE.md"]
    );
}

#[test]
fn a_crate_that_nobody_placed_is_found() {
    assert_eq!(
        against_the_arrows(&[crate_with("palyra-misc", [])]),
        ["`palyra-misc` has no place yet: add a line for it to `REACH` in tests/tests/architecture.rs"]
    );
}

#[test]
fn a_trespass_is_found_even_where_anything_may_be_reached() {
    let trespassing = [
        crate_with("palyra-cli", ["cedar-policy-formatter"]),
        crate_with("palyra-tests", ["palyra-sandbox"]),
        crate_with("palyra-policy", ["cedar-policy", "cedar-policy-core"]),
        crate_with("palyra-daemon", ["wasmtimer"]),
    ];
    assert_eq!(
        trespasses(&trespassing),
        [
            "`palyra-cli` may not depend on `cedar-policy-formatter`, which is for palyra-policy, palyra-benches: let it offer what is needed",
            "`palyra-tests` may not depend on `palyra-sandbox`, which is for palyra-gate: let it offer what is needed",
        ]
    );
}

#[test]
fn a_wrapper_rule_that_drifted_is_found() {
    let faithful = [
        ban("palyra-sandbox", ["palyra-gate"]),
        ban("palyra-skills", ["palyra-gate", "palyra-benches"]),
        ban("cedar-policy", ["palyra-policy", "palyra-benches"]),
        ban("wasmtime", ["palyra-skills", "palyra-benches", "wasmtime-wasi"]),
        ban("openssl", []),
    ];
    assert_eq!(drift(&faithful), [""; 0]);

    let wider = ban("wasmtime-wasi", ["palyra-skills", "palyra-cli"]);
    let unknown = ban("rusqlite", ["palyra-journal"]);
    let missing_wasmtime = faithful.into_iter().filter(|ban| ban.name != "wasmtime");
    assert_eq!(
        drift(&missing_wasmtime.chain([wider, unknown]).collect::<Vec<_>>()),
        [
            "deny.toml does not reserve `wasmtime`: add it to `bans.deny` with the wrappers palyra-skills, palyra-benches",
            "deny.toml lets palyra-cli, palyra-skills use `wasmtime-wasi`: make its `palyra-` wrappers palyra-skills, palyra-benches",
            "deny.toml reserves `rusqlite`: add it to `RESERVED` in tests/tests/architecture.rs too",
        ]
    );
}

#[test]
fn a_crate_with_lints_of_its_own_is_found() {
    let own = Crate { inherits_lints: false, ..crate_with("palyra-api", []) };
    assert_eq!(
        without_lints(&[own, crate_with("palyra-types", [])]),
        ["`palyra-api` has lints of its own: put `[lints]` with `workspace = true` into its Cargo.toml"]
    );
}

#[test]
fn a_file_without_a_purpose_is_found() {
    let files = [source("crates/cli/src/main.rs", "fn main() {}\n"), source("crates/cli/src/tour.rs", "//! A tour.\n")];
    assert_eq!(
        undocumented(&files),
        ["crates/cli/src/main.rs does not say what it is for: open it with a `//!` sentence"]
    );
}

#[test]
fn a_vague_name_is_found_for_files_and_directories() {
    let files = ["crates/cli/src/utils.rs", "tests/tests/common/mod.rs", "crates/cli/src/commonality.rs"];
    assert_eq!(
        vaguely_named(&files.map(|path| source(path, "//! x"))),
        [
            "crates/cli/src/utils.rs says nothing by `utils`: name it after what is inside",
            "tests/tests/common/mod.rs says nothing by `common`: name it after what is inside",
        ]
    );
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let files = [801, 800].map(|lines| source(&format!("crates/cli/src/{lines}.rs"), &"//! x\n".repeat(lines)));
    assert_eq!(
        too_long(&files),
        ["crates/cli/src/801.rs has 801 lines, which is more than 800: split it where a second noun begins"]
    );
}

fn against_the_arrows(crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    for Crate { name, dependencies, .. } in crates {
        let allowed = match REACH.iter().find(|(known, _)| known == name) {
            Some((_, Reach::Only(allowed))) => *allowed,
            Some((_, Reach::Anything)) => continue,
            None => {
                problems.push(format!(
                    "`{name}` has no place yet: add a line for it to `REACH` in tests/tests/architecture.rs"
                ));
                continue;
            }
        };
        let ours = dependencies.iter().filter(|dependency| dependency.starts_with("palyra-"));
        problems.extend(ours.filter(|dependency| !allowed.contains(&dependency.as_str())).map(|dependency| {
            format!(
                "`{name}` may not depend on `{dependency}`: move what it needs down into a crate that both may use, \
                 or change `REACH` in tests/tests/architecture.rs and say why in ARCHITECTURE.md"
            )
        }));
    }
    problems
}

fn trespasses(crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    for Crate { name, dependencies, .. } in crates {
        for dependency in dependencies {
            let Some(reserved) = Reserved::of(dependency) else { continue };
            if !reserved.wrappers.contains(&name.as_str()) {
                let wrappers = reserved.wrappers.join(", ");
                problems.push(format!(
                    "`{name}` may not depend on `{dependency}`, which is for {wrappers}: let it offer what is needed"
                ));
            }
        }
    }
    problems
}

fn drift(bans: &[Ban]) -> Vec<String> {
    let unstated = RESERVED.iter().filter(|reserved| !bans.iter().any(|ban| ban.name == reserved.family));
    let unstated = unstated.map(|Reserved { family, wrappers }| {
        let wrappers = wrappers.join(", ");
        format!("deny.toml does not reserve `{family}`: add it to `bans.deny` with the wrappers {wrappers}")
    });
    let different = bans.iter().filter_map(|Ban { name, wrappers }| {
        let ours: BTreeSet<_> = wrappers.iter().filter(|name| name.starts_with("palyra-")).cloned().collect();
        match Reserved::of(name) {
            Some(reserved) if ours != set(reserved.wrappers.iter().copied()) => Some(format!(
                "deny.toml lets {} use `{name}`: make its `palyra-` wrappers {}",
                ours.into_iter().collect::<Vec<_>>().join(", "),
                reserved.wrappers.join(", ")
            )),
            None if !ours.is_empty() => {
                Some(format!("deny.toml reserves `{name}`: add it to `RESERVED` in tests/tests/architecture.rs too"))
            }
            _ => None,
        }
    });
    unstated.chain(different).collect()
}

fn without_lints(crates: &[Crate]) -> Vec<String> {
    let offenders = crates.iter().filter(|one| !one.inherits_lints);
    offenders
        .map(|Crate { name, .. }| {
            format!("`{name}` has lints of its own: put `[lints]` with `workspace = true` into its Cargo.toml")
        })
        .collect()
}

fn undocumented(sources: &[Source]) -> Vec<String> {
    let offenders = sources.iter().filter(|source| !source.text.starts_with("//!"));
    offenders
        .map(|Source { path, .. }| {
            format!("{} does not say what it is for: open it with a `//!` sentence", path.display())
        })
        .collect()
}

fn vaguely_named(sources: &[Source]) -> Vec<String> {
    let vague = |path: &Path| {
        let names = path.iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
        names.into_iter().find_map(|name| VAGUE.iter().find(|&&vague| vague == name))
    };
    let offenders = sources.iter().filter_map(|source| Some((source, vague(&source.path)?)));
    offenders
        .map(|(Source { path, .. }, name)| {
            format!("{} says nothing by `{name}`: name it after what is inside", path.display())
        })
        .collect()
}

fn too_long(sources: &[Source]) -> Vec<String> {
    let measured = sources.iter().map(|source| (source, source.text.lines().count()));
    measured
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(Source { path, .. }, lines)| {
            format!(
                "{} has {lines} lines, which is more than {LONGEST_FILE}: split it where a second noun begins",
                path.display()
            )
        })
        .collect()
}

impl Reserved {
    /// The rule that covers this crate.
    fn of(name: &str) -> Option<&'static Self> {
        let covers = |reserved: &&Self| {
            name.strip_prefix(reserved.family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        RESERVED.iter().find(covers)
    }
}

/// A crate of the workspace, as its manifest declares it.
struct Crate {
    name: String,
    /// Dependencies of every kind, by the name that their own manifest has.
    dependencies: BTreeSet<String>,
    inherits_lints: bool,
}

/// A source file, by its path from the root of the workspace.
struct Source {
    path: PathBuf,
    text: String,
}

#[derive(Deserialize)]
struct DenyToml {
    bans: Bans,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    #[serde(default)]
    wrappers: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Manifest {
    lints: Option<Lints>,
}

#[derive(Deserialize)]
struct Lints {
    #[serde(default)]
    workspace: bool,
    #[serde(flatten)]
    own: toml::Table,
}

impl Lints {
    /// Whether they are those of the workspace, or, for the one crate that loads compiled code, those with `unsafe_code` denied instead of
    /// forbidden, so that one function can be excepted.
    fn are_of_the_workspace(&self, name: &str, workspace: &toml::Table) -> bool {
        let mut excepted = workspace.clone();
        if let Some(rust) = excepted.get_mut("rust").and_then(toml::Value::as_table_mut) {
            rust.insert("unsafe_code".to_owned(), "deny".into());
        }
        self.workspace || (name == LOADS_CODE && self.own == excepted)
    }
}

fn crates() -> Result<Vec<Crate>, Box<dyn Error>> {
    let manifest = root().join("Cargo.toml");
    let whole: toml::Table = toml::from_str(&fs::read_to_string(&manifest)?)?;
    let lints = whole.get("workspace").and_then(|workspace| workspace.get("lints")).and_then(toml::Value::as_table);
    let workspace = lints.cloned().unwrap_or_default();
    let offline = ["--offline".to_owned()];
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().other_options(offline).exec()?;
    let packages = metadata.workspace_packages().into_iter();
    packages
        .map(|package| {
            let manifest: Manifest = toml::from_str(&fs::read_to_string(&package.manifest_path)?)?;
            let are_inherited = |lints: Lints| lints.are_of_the_workspace(&package.name, &workspace);
            Ok(Crate {
                name: package.name.to_string(),
                dependencies: package.dependencies.iter().map(|dependency| dependency.name.clone()).collect(),
                inherits_lints: manifest.lints.is_some_and(are_inherited),
            })
        })
        .collect()
}

fn sources() -> Result<Vec<Source>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut directories: Vec<_> = SOURCE_ROOTS.map(|name| root().join(name)).into();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)?;
                found.push(Source { path: path.strip_prefix(root())?.to_owned(), text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The root of the workspace.
fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

fn crate_with<const N: usize>(name: &str, dependencies: [&str; N]) -> Crate {
    Crate { name: name.to_owned(), dependencies: set(dependencies), inherits_lints: true }
}

fn ban<const N: usize>(name: &str, wrappers: [&str; N]) -> Ban {
    Ban { name: name.to_owned(), wrappers: set(wrappers) }
}

fn source(path: &str, text: &str) -> Source {
    Source { path: PathBuf::from(path), text: text.to_owned() }
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
