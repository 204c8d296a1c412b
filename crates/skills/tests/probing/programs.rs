//! Builds the programs of `tests/probes`, and finds them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use crate::machine;

/// All programs by their names, built if they are older than their sources.
pub fn all() -> BTreeMap<String, Vec<u8>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes");
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../skill-guests");
    let changed = newest(&sources).max(newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("wit")));
    let mut programs = BTreeMap::new();
    for Kind { package, what, target, sources: directory, built } in KINDS {
        let names = names(&sources.join(directory));
        let built: BTreeMap<_, _> = names
            .into_iter()
            .map(|name| (name.clone(), output.join(target).join(built).join(name + ".wasm")))
            .collect();
        if !built.values().all(|file| modified(file).is_some_and(|built| built > changed)) {
            let status = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--locked", "--release", "--package", package, what, "--target", target])
                .env("CARGO_TARGET_DIR", &output)
                .env("PALYRA_PROBE_CANARY", machine::canary())
                // They would take the place of the flags that belong to the programs.
                .env_remove("RUSTFLAGS")
                .env_remove("CARGO_ENCODED_RUSTFLAGS")
                .current_dir(&sources)
                .status()
                .unwrap();
            assert!(status.success(), "the programs do not build; is the target `{target}` there?");
            for file in built.values() {
                // Cargo leaves a file alone that would not change.
                fs::File::options().append(true).open(file).unwrap().set_modified(SystemTime::now()).unwrap();
            }
        }
        programs.extend(built.into_iter().map(|(name, file)| (name, fs::read(file).unwrap())));
    }
    programs
}

/// One package of programs.
struct Kind {
    package: &'static str,
    what: &'static str,
    target: &'static str,
    sources: &'static str,
    built: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        package: "preview1",
        what: "--bins",
        target: "wasm32-wasip1",
        sources: "preview1/src/bin",
        built: "release",
    },
    Kind {
        package: "component",
        what: "--examples",
        target: "wasm32-wasip2",
        sources: "component/programs",
        built: "release/examples",
    },
];

/// The names of the programs whose sources are in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn newest(path: &Path) -> SystemTime {
    let children = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| newest(&entry.path())).max();
    children.unwrap_or(SystemTime::UNIX_EPOCH).max(if path.is_dir() {
        SystemTime::UNIX_EPOCH
    } else {
        modified(path).unwrap()
    })
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}
