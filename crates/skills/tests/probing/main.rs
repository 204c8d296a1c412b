//! Programs that each try one thing: run with nothing granted they touch nothing, and with everything granted what is supported works.
//!
//! The programs are in `tests/probes`: modules for each function of WASI preview 1, components for each function of `palyra:skill` and of
//! WASI 0.2 that the host has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test stops at the first surprise, and builds its programs with cargo"
)]

mod component;
mod machine;
mod preview1;
mod programs;
mod rows;
mod witness;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use palyra_package::{
    Destination, FileAccess, FileGrant, Form, Grants, KvQuota, Metering, Need, Package, PackageError, SkillLimits,
};
use palyra_skills::{
    artifact::ArtifactStore,
    compile::{CompileRequest, compile},
    engine::{EngineOptions, LoadedSkill, SkillCall, SkillEngine},
    outcome::{SkillFailure, SkillRun},
};
use palyra_types::{SecretRef, Sha256Digest, entropy::SystemEntropy};

use crate::{
    machine::Machine,
    rows::{Ends, Row},
    witness::Witness,
};

#[test]
fn there_are_at_least_forty_programs_and_each_has_one_row() {
    let rows: Vec<&str> = rows::all().map(|row| row.program).collect();
    let named: BTreeSet<&str> = rows.iter().copied().collect();
    let built = programs::all();
    assert_eq!(named, built.keys().map(String::as_str).collect());
    assert_eq!(rows.len(), named.len(), "a program has one row");
    assert!(rows.len() >= 40, "{}", rows.len());
}

#[test]
fn each_program_imports_what_its_row_says_and_nothing_else() {
    let programs = programs::all();
    for row in rows::all() {
        let required = palyra_package::imports::required(&programs[row.program]).unwrap();
        let always = match required.form {
            // What a module tells with, and what a component fails with.
            Form::Module => ("wasi_snapshot_preview1.fd_write", Need::Free),
            Form::Component => ("palyra:skill/types@1.0.0", Need::Free),
        };
        let mut found: Vec<_> = required.imports.iter().map(|(import, need)| (import.as_str(), *need)).collect();
        found.retain(|import| row.imports.contains(import) || *import != always);
        assert_eq!(found, row.imports, "{}", row.program);
    }
}

#[test]
fn the_programs_that_try_a_path_try_the_canary() {
    let canary = machine::canary().into_os_string().into_string().unwrap();
    let mut trying: Vec<_> = programs::all().into_iter().filter(|(name, _)| name.starts_with("path_")).collect();
    assert_eq!(trying.len(), 10);
    trying.retain(|(_, wasm)| !wasm.windows(canary.len()).any(|bytes| bytes == canary.as_bytes()));
    assert_eq!(trying, []);
}

#[test]
fn a_manifest_that_declares_less_than_its_program_imports_is_refused() {
    let programs = programs::all();
    for row in rows::all() {
        let needs: BTreeSet<Need> =
            row.imports.iter().map(|&(_, need)| need).filter(|&need| need != Need::Free).collect();
        assert!(package(&programs[row.program], &needs).is_ok(), "{}", row.program);
        for missing in &needs {
            let less = needs.iter().copied().filter(|need| need != missing).collect();
            let Err(PackageError::AsksForLess(found)) = package(&programs[row.program], &less) else {
                panic!("{} is taken without `{missing}`", row.program);
            };
            assert_eq!(found.iter().map(|missing| missing.need).collect::<Vec<_>>(), [*missing], "{}", row.program);
        }
    }
}

#[tokio::test]
async fn with_nothing_granted_every_program_touches_nothing() {
    let lab = Lab::new();
    for row in rows::all() {
        let (run, heard) = lab.run(row, Grants::default()).await;
        assert_eq!(ended(&run), expected(row.denied), "{}", row.program);
        assert_eq!(heard, row.heard_without_grants(), "{}", row.program);
        assert!(heard.iter().all(|line| line.starts_with("log ")), "{} is free and asks the host", row.program);
        lab.machine.is_untouched(row.program);
        lab.machine.is_not_in(row.program, &format!("{run:?}"));
    }
}

#[tokio::test]
async fn with_everything_granted_what_is_supported_works_and_what_is_inert_still_leads_nowhere() {
    let lab = Lab::new();
    for row in rows::all() {
        let (run, heard) = lab.run(row, everything()).await;
        assert_eq!(ended(&run), expected(row.granted), "{}", row.program);
        assert_eq!(heard, row.heard, "{}", row.program);
        lab.machine.is_untouched(row.program);
        lab.machine.is_not_in(row.program, &format!("{run:?}"));
    }
}

#[tokio::test]
async fn every_capability_has_a_program_that_is_refused_without_it_and_works_with_it() {
    let lab = Lab::new();
    let mut tried = BTreeSet::new();
    for row in rows::all() {
        let Ends::NotGranted(capability) = row.denied else { continue };
        tried.insert(capability);
        let (run, heard) = lab.run(row, everything_but(capability)).await;
        assert_eq!(ended(&run), expected(row.denied), "{}", row.program);
        assert_eq!(heard, [""; 0], "{}", row.program);
        let (run, _) = lab.run(row, only(capability)).await;
        assert_eq!(ended(&run), expected(row.granted), "{}", row.program);
    }
    assert_eq!(tried, ["clock", "files", "http", "kv", "log", "random", "secrets"].into());
}

struct Lab {
    engine: SkillEngine,
    artifacts: ArtifactStore,
    programs: BTreeMap<String, Vec<u8>>,
    machine: Machine,
}

impl Lab {
    fn new() -> Self {
        // Compiled programs are kept from run to run, as skills are.
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe-artifacts");
        Self {
            engine: SkillEngine::new(EngineOptions { concurrent_calls: 4, ..EngineOptions::default() }).unwrap(),
            artifacts: ArtifactStore::open(&directory, &SystemEntropy).unwrap(),
            programs: programs::all(),
            machine: Machine::new(),
        }
    }

    /// Runs a program once. Gives what came of it, and what the host heard.
    async fn run(&self, row: &Row, grants: Grants) -> (SkillRun, Vec<String>) {
        let host = Arc::new(Witness::default());
        let port = self.machine.port().to_string();
        let call = SkillCall {
            skill: self.load(&self.programs[row.program]),
            id: "acme/probe".to_owned(),
            tool: "try".to_owned(),
            input: format!("\"{}\"", row.input.replace("PORT", &port)),
            grants: Arc::new(grants),
            limits: SkillLimits::default(),
            host: Arc::clone(&host) as _,
            record: None,
        };
        let run = self.engine.call(call).await;
        let heard = host.heard().into_iter().map(|line| match line.split_once(ADAPTER) {
            // Where in the adapter is of no interest, and changes with it.
            Some((before, _)) => format!("{before}{ADAPTER}"),
            None => line.replace(&port, "PORT"),
        });
        (run, heard.collect())
    }

    fn load(&self, wasm: &[u8]) -> Arc<LoadedSkill> {
        let (digest, metering) = (Sha256Digest::of(wasm), Metering::Epoch);
        if self.artifacts.get(digest, metering).unwrap().is_none() {
            let compiled = compile(&CompileRequest { wasm: wasm.to_vec(), metering }).unwrap();
            self.artifacts.put(digest, metering, &compiled).unwrap();
        }
        self.engine.load(self.artifacts.get(digest, metering).unwrap().unwrap(), "acme").unwrap()
    }
}

/// What the adapter of WASI preview 1 writes to standard error before it gives up.
const ADAPTER: &str = "unreachable executed at adapter line";

/// How it ended. What the adapter of WASI says when it gives up is its own affair.
fn ended(run: &SkillRun) -> Result<&str, SkillFailure> {
    run.answer.as_deref().map_err(|failure| match failure {
        SkillFailure::Trapped { detail } => {
            let detail = detail.split("; it said: ").next().unwrap_or_default().to_owned();
            SkillFailure::Trapped { detail }
        }
        failure => failure.clone(),
    })
}

fn expected(ends: Ends) -> Result<&'static str, SkillFailure> {
    match ends {
        Ends::Says(answer) => Ok(answer),
        Ends::NotGranted(capability) => Err(SkillFailure::NotGranted { capability: capability.to_owned() }),
        Ends::Inert(interface) => Err(SkillFailure::Inert { interface: interface.to_owned() }),
        Ends::Exits(code) => Err(SkillFailure::Exited { code }),
        Ends::Traps(detail) => Err(SkillFailure::Trapped { detail: detail.to_owned() }),
    }
}

/// A package of a program whose manifest asks for these.
fn package(wasm: &[u8], needs: &BTreeSet<Need>) -> Result<Package, PackageError> {
    let lines: Vec<&str> = needs.iter().map(|need| need.line()).collect();
    let manifest = format!(
        "id = \"acme/probe\"\nversion = \"1.0.0\"\npublisher = \"acme\"\nlicense = \"Apache-2.0\"\nsummary = \"tries one thing\"\n\
         [[tool]]\nname = \"try\"\nsummary = \"tries it\"\ninput = {{ type = \"string\" }}\n[capabilities]\n{}\n",
        lines.join("\n")
    );
    let files = [("skill.toml".to_owned(), manifest.into_bytes()), ("skill.wasm".to_owned(), wasm.to_vec())];
    Package::build(files.into()).map(|built| built.package)
}

fn everything() -> Grants {
    Grants {
        log: true,
        clock: true,
        random: true,
        kv: Some(KvQuota { bytes: 100, entries: 10 }),
        http: [Destination::parse("example.org:443").unwrap()].into(),
        secrets: [("token".to_owned(), SecretRef::parse("global/token").unwrap())].into(),
        files: [("notes".to_owned(), FileGrant { path: "notes".to_owned(), access: FileAccess::Write })].into(),
    }
}

fn everything_but(capability: &str) -> Grants {
    let (nothing, mut grants) = (Grants::default(), everything());
    exchange(&mut grants, nothing, capability);
    grants
}

fn only(capability: &str) -> Grants {
    let mut grants = Grants::default();
    exchange(&mut grants, everything(), capability);
    grants
}

fn exchange(grants: &mut Grants, other: Grants, capability: &str) {
    match capability {
        "log" => grants.log = other.log,
        "clock" => grants.clock = other.clock,
        "random" => grants.random = other.random,
        "kv" => grants.kv = other.kv,
        "http" => grants.http = other.http,
        "secrets" => grants.secrets = other.secrets,
        "files" => grants.files = other.files,
        other => panic!("`{other}` is no capability"),
    }
}
