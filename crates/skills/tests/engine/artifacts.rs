//! What was compiled is loaded only as it was put there.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use palyra_package::Metering;
use palyra_skills::{
    artifact::{ArtifactError, ArtifactStore},
    compile::{CompileRequest, compile},
    engine::SkillEngine,
};
use palyra_types::{Sha256Digest, entropy::SystemEntropy};
use tempfile::TempDir;

use crate::{guests, lab::Lab};

const METERING: Metering = Metering::Epoch;

struct Kept {
    directory: TempDir,
    store: ArtifactStore,
    digest: Sha256Digest,
}

fn kept() -> Kept {
    let directory = TempDir::new().unwrap();
    let store = ArtifactStore::open(directory.path(), &SystemEntropy).unwrap();
    let wasm = guests::small("", "");
    let digest = Sha256Digest::of(&wasm);
    store.put(digest, METERING, &compile(&CompileRequest { wasm, metering: METERING }).unwrap()).unwrap();
    Kept { directory, store, digest }
}

fn file_of(directory: &Path, digest: Sha256Digest) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&digest.to_hex())).unwrap()
}

#[tokio::test]
async fn what_was_put_is_found_by_whoever_opens_the_store_again() {
    let Kept { directory, store, digest } = kept();
    drop(store);
    let store = ArtifactStore::open(directory.path(), &SystemEntropy).unwrap();
    let lab = Lab::new();
    let skill = lab.engine.load(store.get(digest, METERING).unwrap().unwrap(), "acme").unwrap();
    assert_eq!(lab.call(&skill).answer("", "").await, Ok("{}".to_owned()));
    assert!(store.get(Sha256Digest::of(b"another"), METERING).unwrap().is_none());
    assert!(store.get(digest, Metering::Fuel).unwrap().is_none());
    store.keep_only(&[digest].into());
    assert!(store.has(digest, METERING));
    store.forget(&[Sha256Digest::of(b"another")].into());
    assert!(store.has(digest, METERING));
    store.keep_only(&[Sha256Digest::of(b"another")].into());
    assert!(store.get(digest, METERING).unwrap().is_none());
}

#[test]
fn a_byte_that_changed_anywhere_is_noticed() {
    let Kept { directory, store, digest } = kept();
    let path = file_of(directory.path(), digest);
    let content = fs::read(&path).unwrap();
    let step = content.len() / 50;
    for at in (0..100).chain((100..content.len()).step_by(step)).chain([content.len() - 1]) {
        let mut changed = content.clone();
        changed[at] ^= 1;
        fs::write(&path, changed).unwrap();
        assert!(matches!(store.get(digest, METERING), Err(ArtifactError::NotAuthentic)), "{at}");
    }
}

#[test]
fn what_was_cut_or_lengthened_is_noticed() {
    let Kept { directory, store, digest } = kept();
    let path = file_of(directory.path(), digest);
    let content = fs::read(&path).unwrap();
    for length in [0, 10, 31, 32, 33, 100, content.len() / 2, content.len() - 1] {
        fs::write(&path, &content[..length]).unwrap();
        assert!(matches!(store.get(digest, METERING), Err(ArtifactError::NotAuthentic)), "{length}");
    }
    fs::write(&path, [content, vec![0]].concat()).unwrap();
    assert!(matches!(store.get(digest, METERING), Err(ArtifactError::NotAuthentic)));
}

#[test]
fn an_artifact_of_another_component_or_configuration_is_refused() {
    let Kept { directory, store, digest } = kept();
    let other = guests::small("", "nop");
    let other_digest = Sha256Digest::of(&other);
    for (wasm, digest, metering) in [(other, other_digest, METERING), (guests::small("", ""), digest, Metering::Fuel)] {
        store.put(digest, metering, &compile(&CompileRequest { wasm, metering }).unwrap()).unwrap();
    }
    let file = |digest: Sha256Digest, metering: Metering| {
        let prefix = format!("{digest}-{metering}");
        let mut files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix)).unwrap()
    };
    for source in [file(other_digest, METERING), file(digest, Metering::Fuel)] {
        fs::copy(source, file(digest, METERING)).unwrap();
        assert!(matches!(store.get(digest, METERING), Err(ArtifactError::Misplaced)));
    }
}

#[test]
fn an_artifact_of_another_machine_is_refused() {
    let (ours, theirs) = (kept(), kept());
    let path = file_of(ours.directory.path(), ours.digest);
    fs::copy(file_of(theirs.directory.path(), theirs.digest), path).unwrap();
    assert!(matches!(ours.store.get(ours.digest, METERING), Err(ArtifactError::NotAuthentic)));
}

#[test]
fn code_that_was_put_for_the_wrong_configuration_does_not_load() {
    let Kept { directory: _directory, store, digest } = kept();
    let wasm = guests::small("", "");
    store.put(digest, METERING, &compile(&CompileRequest { wasm, metering: Metering::Fuel }).unwrap()).unwrap();
    let lab = Lab::new();
    let error = lab.engine.load(store.get(digest, METERING).unwrap().unwrap(), "acme").unwrap_err();
    assert!(matches!(error, palyra_skills::engine::EngineError::Unloadable { .. }), "{error}");
}

#[test]
fn the_key_is_for_its_owner_alone_and_a_damaged_one_is_refused() {
    let Kept { directory, .. } = kept();
    let key = directory.path().join("key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&key, b"short").unwrap();
    assert!(matches!(ArtifactStore::open(directory.path(), &SystemEntropy), Err(ArtifactError::Key)));
}

#[test]
fn a_fingerprint_names_the_version_and_the_way_of_metering() {
    let print = SkillEngine::fingerprint(Metering::Fuel);
    assert!(print.starts_with("wasmtime 48.0.8, revision 1, fuel, "), "{print}");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let Kept { directory, store, digest } = kept();
    let path = file_of(directory.path(), digest);
    fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(matches!(store.get(digest, METERING), Err(ArtifactError::NotAuthentic)));
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("key", &path).unwrap();
    assert!(matches!(store.get(digest, METERING), Err(ArtifactError::Io(_))));
}
