//! Skills to try things on: a program that does one thing for each tool, packed and signed by a publisher of the laboratory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::disallowed_methods,
    reason = "a skill that cannot be made ends the test"
)]

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf, process::Command};

use palyra_gate::{
    Gate,
    skills::{
        COMPILE_ARGUMENT, InstallOptions, Installation, InstalledSkill, SkillCompiler, SkillRefusal, SkillsGround,
    },
};
use palyra_package::{Grants, PackageId, PublisherName, SecretSigningKey, archive};
use palyra_types::AbsolutePath;

use crate::lab::operator;

/// A publisher with a key.
pub struct Publisher {
    /// What it is called.
    pub name: PublisherName,
    /// Its key.
    pub key: SecretSigningKey,
}

impl Publisher {
    /// One with a fresh key.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: PublisherName::parse(name).unwrap(), key: SecretSigningKey::generate(None).unwrap() }
    }

    /// Lets its key count.
    pub async fn pin(&self, gate: &Gate) {
        gate.trust_publisher(self.name.clone(), self.key.public(), true, &operator()).await.unwrap();
    }

    /// Signs an archive.
    #[must_use]
    pub fn sign(&self, archive: &[u8]) -> String {
        self.key.sign(archive, "for the laboratory").unwrap()
    }

    /// Installs a skill of it.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn install(
        &self,
        gate: &Gate,
        archive: Vec<u8>,
        grants: Option<Grants>,
    ) -> Result<std::sync::Arc<InstalledSkill>, SkillRefusal> {
        let signature = Some(self.sign(&archive));
        let installation = Installation { archive, signature, grants, options: InstallOptions::default() };
        gate.install_skill(installation, &operator()).await
    }
}

/// The name of a skill.
#[must_use]
pub fn id(text: &str) -> PackageId {
    PackageId::parse(text).unwrap()
}

/// Opens the skills of a gate in a directory. `compiler` is a program that compiles when it is told to.
pub async fn open(gate: &Gate, directory: &Path, compiler: &str) {
    let program = AbsolutePath::parse(fs::canonicalize(compiler).unwrap().to_str().unwrap()).unwrap();
    let compiler = SkillCompiler { program, args: vec![COMPILE_ARGUMENT.to_owned()] };
    let ground =
        SkillsGround { directory: directory.to_owned(), compiler, concurrent_calls: 64, all_memory_bytes: 4 << 30 };
    gate.open_skills(ground).await.unwrap();
}

/// A package of the probe: a program that does one thing for each tool. `more` are further lines of its manifest.
#[must_use]
pub fn probe(id: &str, version: &str, tools: &[&str], more: &str) -> Vec<u8> {
    package(id, version, tools, more, guest("probe", "wasm32-wasip2"))
}

/// Everything that the probe can be granted, and what it imports without need.
pub const ASKED: &str = r#"
[capabilities]
log = true
clock = true
random = true
kv = { bytes = 1000, entries = 3 }
http = ["api.lab.test:PORT", "other.lab.test:PORT"]
secrets = { KEY = "opens the private part" }
files = { notes = "write", books = "read" }
inert = ["wasi:filesystem", "wasi:sockets"]
"#;

/// A package of a program.
#[must_use]
pub fn package(id: &str, version: &str, tools: &[&str], more: &str, program: Vec<u8>) -> Vec<u8> {
    let publisher = id.split('/').next().unwrap();
    let mut manifest = format!(
        "id = \"{id}\"\nversion = \"{version}\"\npublisher = \"{publisher}\"\nlicense = \"Apache-2.0\"\nsummary = \"a probe\"\n"
    );
    for tool in tools {
        manifest += &format!("[[tool]]\nname = \"{tool}\"\nsummary = \"does it\"\ninput = {{ type = \"object\" }}\n");
    }
    manifest += more;
    let files = BTreeMap::from([("skill.toml".to_owned(), manifest.into_bytes()), ("skill.wasm".to_owned(), program)]);
    archive::pack(&files).unwrap()
}

/// A guest of the engine's own tests, built.
#[must_use]
pub fn guest(package: &str, target: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = target_directory().join("skill-guests");
    let built = output.join(target).join("release").join(format!("{package}.wasm"));
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", package, "--target", target])
        .env("CARGO_TARGET_DIR", &output)
        .current_dir(root.join("crates/skills/tests/guests"))
        .status()
        .unwrap();
    assert!(status.success(), "the guests do not build; are the targets of rust-toolchain.toml there?");
    fs::read(built).unwrap()
}

/// A component of the world `palyra:skill@0.1.0` that imports nothing and answers `{}`.
#[must_use]
pub fn guest_small() -> Vec<u8> {
    small("", "")
}

/// The same, whose function does `body` first; beside it are `fields`.
#[must_use]
pub fn small(fields: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
      (core module $m
        (memory (export "memory") 1)
        (global $next (mut i32) (i32.const 4096))
        {fields}
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
          (local $at i32)
          (local.set $at (global.get $next))
          (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))
          (local.get $at))
        (data (i32.const 16) "\00\00\00\00\20\00\00\00\02\00\00\00")
        (data (i32.const 32) "{{}}")
        (func (export "run") (param i32 i32 i32 i32) (result i32) {body} (i32.const 16)))
      (core instance $i (instantiate $m))
      (func (export "run") (param "tool" string) (param "input" string) (result (result string (error string)))
        (canon lift (core func $i "run") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#
    );
    wat::parse_str(text).unwrap()
}

/// An example skill, packed from its directory; `make skills` builds its program.
#[must_use]
pub fn example(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../skills").join(name);
    let mut files = BTreeMap::new();
    collect(&root, &root, &mut files);
    let program =
        target_directory().join("skills/wasm32-wasip2/release").join(format!("{}.wasm", name.replace('-', "_")));
    let program = fs::read(&program).unwrap_or_else(|_| panic!("{} is missing: make skills", program.display()));
    files.retain(|name, _| {
        ["skill.toml", "SKILL.md"].contains(&name.as_str())
            || name.starts_with("schemas/")
            || name.starts_with("tests/")
    });
    files.insert("skill.wasm".to_owned(), program);
    archive::pack(&files).unwrap()
}

fn collect(root: &Path, directory: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => collect(root, &entry.path(), files),
            false => {
                let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
}

/// Where everything is built.
fn target_directory() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"))
}
