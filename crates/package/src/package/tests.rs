//! Whole packages, read and made.

use proptest::prelude::*;

use super::*;
use crate::archive::pack;

const MANIFEST_TEXT: &str = r#"
id = "acme/small"
version = "0.1.0"
publisher = "acme"
license = "Apache-2.0"
summary = "Little"
sbom = "sbom.json"
[[tool]]
name = "do"
summary = "Does it"
input = "schemas/in.json"
[capabilities]
random = true
[build]
command = ["make"]
output = "target/out.wasm"
"#;

fn program() -> Vec<u8> {
    let text = r#"(module (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))
        (memory (export "memory") 1) (func (export "_start")))"#;
    wat::parse_str(text).unwrap()
}

fn files() -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        (MANIFEST.to_owned(), MANIFEST_TEXT.into()),
        ("skill.wasm".to_owned(), program()),
        (SKILL_MD.to_owned(), b"# How to use it\n".to_vec()),
        ("README.md".to_owned(), b"hello".to_vec()),
        ("LICENSE-APACHE".to_owned(), b"...".to_vec()),
        ("schemas/in.json".to_owned(), br#"{"type": "object"}"#.to_vec()),
        ("sbom.json".to_owned(), br#"{"bomFormat": "CycloneDX"}"#.to_vec()),
        ("tests/one.json".to_owned(), br#"{"tool": "do", "input": {}, "output": 1}"#.to_vec()),
    ])
}

/// What becomes of the package when one of its files is another, or none.
fn with(name: &str, content: Option<&[u8]>) -> Result<Package, PackageError> {
    let mut files = files();
    files.remove(name);
    files.extend(content.map(|content| (name.to_owned(), content.to_vec())));
    Package::read(&pack(&files).unwrap())
}

#[test]
fn a_package_is_read_whole() {
    let archive = pack(&files()).unwrap();
    let package = Package::read(&archive).unwrap();
    assert_eq!(package.manifest.id.as_str(), "acme/small");
    assert_eq!(package.component.as_ref(), program());
    assert_eq!(package.digest, Sha256Digest::of(&archive));
    assert_eq!(package.component_digest, Sha256Digest::of(&program()));
    assert_eq!(package.skill_md.as_deref(), Some("# How to use it\n"));
    assert_eq!(package.golden.keys().collect::<Vec<_>>(), ["tests/one.json"]);
    assert_eq!(package.required, imports::required(&program()).unwrap());
    assert_eq!(package.file_name(), "small-0.1.0.skill");
    assert_eq!(with(SKILL_MD, None).unwrap().skill_md, None);
}

#[test]
fn a_package_is_built_from_what_belongs_into_it_and_nothing_else() {
    let mut sources = files();
    let program = sources.remove("skill.wasm").unwrap();
    sources.insert("target/out.wasm".to_owned(), program);
    sources.insert("skill.wasm".to_owned(), b"left over from before".to_vec());
    sources.insert("src/main.rs".to_owned(), b"fn main() {}".to_vec());
    sources.insert("tests/deep/x.json".to_owned(), b"{}".to_vec());
    sources.insert(".git/config".to_owned(), b"secret".to_vec());
    let Built { archive, package } = Package::build(sources).unwrap();
    assert_eq!(archive, pack(&files()).unwrap());
    assert_eq!(package, Package::read(&archive).unwrap());

    let sources = Sources::of(MANIFEST_TEXT).unwrap();
    assert_eq!(sources.program(), "target/out.wasm");
    assert_eq!(sources.recipe().unwrap().command, ["make"]);
    assert!(sources.wants("target/out.wasm") && sources.wants("LICENSE") && sources.wants(MANIFEST));
    assert!(!sources.wants("skill.wasm") && !sources.wants("src/main.rs") && !sources.wants("target/other.wasm"));
    let plain =
        Sources::of(&MANIFEST_TEXT.replace("[build]\ncommand = [\"make\"]\noutput = \"target/out.wasm\"", "")).unwrap();
    assert_eq!((plain.program(), plain.wants("skill.wasm")), ("skill.wasm", true));
}

#[test]
fn a_file_that_has_no_meaning_is_refused() {
    for name in [
        "run.sh",
        "schemas/in.txt",
        "schemas/deep/in.json",
        "tests/x.rs",
        "docs/LICENSE",
        "skill.toml.bak",
        "other.wasm",
    ] {
        assert_eq!(with(name, Some(b"{}")), Err(PackageError::Unexpected(name.to_owned())));
    }
    assert!(with("schemas/unused.json", Some(b"{}")).is_ok());
}

#[test]
fn a_file_that_is_missing_or_broken_is_refused_by_its_own_error() {
    assert_eq!(with(MANIFEST, None), Err(PackageError::NoManifest));
    assert_eq!(with(MANIFEST, Some(b"\xff")), Err(PackageError::NotText(MANIFEST)));
    assert!(matches!(with(MANIFEST, Some(b"id = 1")), Err(PackageError::Manifest(_))));
    let absent = |field, name: &str| Err(PackageError::Absent { field, name: name.to_owned() });
    assert_eq!(with("skill.wasm", None), absent("entry", "skill.wasm"));
    assert_eq!(with("sbom.json", None), absent("sbom", "sbom.json"));
    assert!(matches!(with("sbom.json", Some(b"SPDXVersion: 2.3")), Err(PackageError::Sbom(_))));
    assert!(matches!(with("schemas/in.json", None), Err(PackageError::Manifest(ManifestError::NoSchemaFile { .. }))));
    assert!(matches!(with("schemas/in.json", Some(b"7")), Err(PackageError::Manifest(ManifestError::Schema { .. }))));
    assert_eq!(with(SKILL_MD, Some(b"\xff")), Err(PackageError::NotText(SKILL_MD)));
    let long = vec![b'x'; MOST_PROSE_BYTES + 1];
    assert_eq!(with(SKILL_MD, Some(&long)), Err(PackageError::ProseTooLong { bytes: long.len() }));
    assert!(matches!(with("tests/one.json", Some(b"{}")), Err(PackageError::Golden { .. })));
    let other = br#"{"tool": "other", "input": {}, "output": 1}"#;
    assert!(matches!(with("tests/one.json", Some(other)), Err(PackageError::GoldenTool { .. })));
    assert_eq!(with("skill.wasm", Some(b"#!/bin/sh")), Err(PackageError::Program(ImportsError::NotWasm)));
    assert_eq!(Package::read(b"PK\x03\x04"), Err(PackageError::Archive(ArchiveError::Compressed("zip"))));
}

#[test]
fn a_manifest_that_asks_for_less_than_its_program_imports_is_refused_with_what_to_add() {
    let refused = with(MANIFEST, Some(MANIFEST_TEXT.replace("random = true", "log = true").as_bytes())).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the manifest asks for less than its program imports: its program imports `wasi_snapshot_preview1.random_get`: add `random = true` to [capabilities] in skill.toml"
    );
    assert_eq!(refused.advice(), "add to [capabilities] in skill.toml: `random = true`");
}

#[test]
fn every_refusal_says_what_to_do() {
    for name in [MANIFEST, "skill.wasm", "sbom.json", "schemas/in.json", SKILL_MD, "tests/one.json", "unexpected"] {
        for content in [None, Some(b"\xff".as_slice()), Some(b"{}".as_slice())] {
            if let Err(refused) = with(name, content) {
                assert!(!refused.advice().is_empty() && !refused.to_string().ends_with('.'), "{name}: {refused}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_intake_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        intake(&bytes);
    }

    #[test]
    fn a_changed_package_is_refused_or_has_another_digest(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let whole = pack(&files()).unwrap();
        let mut archive = whole.clone();
        for (at, value) in changes {
            let at = at.index(archive.len());
            archive[at] = value;
        }
        intake(&archive);
        if archive != whole && let Ok(package) = Package::read(&archive) {
            prop_assert_ne!(package.digest, Sha256Digest::of(&whole));
        }
    }

    #[test]
    fn a_package_with_another_file_is_read_or_refused(
        which in prop::sample::select(files().into_keys().collect::<Vec<_>>()),
        content in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut files = files();
        files.insert(which, content);
        intake(&pack(&files).unwrap());
    }
}
