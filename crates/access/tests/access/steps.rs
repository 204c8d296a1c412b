//! A save that is killed, or fails, at each of its steps: the file is the old one or the new one.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use palyra_access::{FileStore, RegistryStore, document};
use tempfile::TempDir;

use super::kills::writer;

#[test]
fn a_save_that_is_killed_before_any_of_its_steps_leaves_the_old_document_or_the_new_one() {
    for Step { call, time, after } in STEPS {
        let (home, path) = founded();
        let told = save(&path, &format!("{call}:signal=KILL:when={time}"));
        assert_eq!((told.status.signal(), text(&told.stdout)), (Some(9), String::new()), "{call} {time}");
        let left = usize::from(after == After::Old);
        assert_eq!(leftovers(home.path()), left, "{call} {time}");
        assert_eq!(revision(&path), after.revision(), "{call} {time}");
        assert_eq!(leftovers(home.path()), 0, "whoever opens it tidies up");
    }
}

#[test]
fn a_save_that_fails_at_any_of_its_steps_leaves_the_old_document() {
    for error in ["EIO", "ENOSPC"] {
        for Step { call, time, .. } in STEPS {
            let (home, path) = founded();
            let before = fs::read(&path).unwrap();
            let told = save(&path, &format!("{call}:error={error}:when={time}"));
            assert_eq!((told.status.code(), text(&told.stdout)), (Some(1), String::new()), "{call} {time} {error}");
            assert_eq!(leftovers(home.path()), 0, "{call} {time} {error}");
            assert_eq!(fs::read(&path).unwrap(), before, "{call} {time} {error}");
            assert_eq!(revision(&path), After::Old.revision(), "{call} {time} {error}");
        }
    }
}

/// A system call of a save, the so-manieth of its name, and what is there if it does not come to it.
struct Step {
    call: &'static str,
    time: u32,
    after: After,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Old,
    New,
}

impl After {
    const fn revision(self) -> u64 {
        match self {
            Self::Old => 1,
            Self::New => 2,
        }
    }
}

/// A registry that was founded, and nothing more.
fn founded() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let told = Command::new(writer()).arg(&path).arg("0").output().unwrap();
    assert!(told.status.success(), "{}", text(&told.stderr));
    (home, path)
}

/// Makes a change, with something that happens to its system calls.
fn save(path: &Path, injected: &str) -> Output {
    let call = injected.split(':').next().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={injected}")]);
    strace.arg(writer()).arg(path).arg("1").output().expect("strace is installed; scripts/setup does that")
}

fn revision(path: &Path) -> u64 {
    let document = FileStore::open(path).unwrap().load().unwrap().unwrap();
    document::decode(&document).unwrap().1
}

/// How many files there are that did not become the registry.
fn leftovers(home: &Path) -> usize {
    let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).count()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// In their order. The first `fsync` is of the file, the second of the directory that it is in.
const STEPS: [Step; 5] = [
    Step { call: "fchmod", time: 1, after: After::Old },
    Step { call: "write", time: 1, after: After::Old },
    Step { call: "fsync", time: 1, after: After::Old },
    Step { call: "renameat", time: 1, after: After::Old },
    Step { call: "fsync", time: 2, after: After::New },
];
