//! The guests of the tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// A component of the world `palyra:skill@1.0.0`, from `tests/guests/probe`.
pub fn probe() -> Vec<u8> {
    built("probe", "wasm32-wasip2", "probe.wasm")
}

/// A core module that speaks WASI preview 1, from `tests/guests/command`.
pub fn command() -> Vec<u8> {
    built("command", "wasm32-wasip1", "command.wasm")
}

/// A component of the world `palyra:skill@0.1.0`. Its function does `body` and answers `{}`; beside it are `fields`.
pub fn small(fields: &str, body: &str) -> Vec<u8> {
    small_with("1", fields, body)
}

/// The same with a memory of so many pages.
pub fn small_with(memory: &str, fields: &str, body: &str) -> Vec<u8> {
    component("", memory, fields, body)
}

/// The same with something else in the component.
pub fn beside(items: &str) -> Vec<u8> {
    component(items, "1", "", "")
}

fn component(items: &str, memory: &str, fields: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
          {items}
          (core module $m
            (memory (export "memory") {memory})
            (global $next (mut i32) (i32.const 4096))
            {fields}
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
              (local $at i32)
              (local.set $at (global.get $next))
              (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))
              (local.get $at))
            (data (i32.const 16) "\00\00\00\00\20\00\00\00\02\00\00\00")
            (data (i32.const 32) "{{}}")
            (func (export "run") (param i32 i32 i32 i32) (result i32)
              {body}
              (i32.const 16)))
          (core instance $i (instantiate $m))
          (func (export "run") (param "tool" string) (param "input" string) (result (result string (error string)))
            (canon lift (core func $i "run") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#
    );
    wat::parse_str(text).unwrap()
}

fn built(package: &str, target: &str, file: &str) -> Vec<u8> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests");
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../skill-guests");
    let built = output.join(target).join("release").join(file);
    let changed = newest(&sources).max(newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("wit")));
    if modified(&built).is_none_or(|built| built <= changed) {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--package", package, "--target", target])
            .env("CARGO_TARGET_DIR", &output)
            .current_dir(&sources)
            .status()
            .unwrap();
        assert!(
            status.success(),
            "the guests do not build; are the targets `wasm32-wasip1` and `wasm32-wasip2` there?"
        );
        // Cargo leaves a file alone that would not change.
        fs::File::options().append(true).open(&built).unwrap().set_modified(SystemTime::now()).unwrap();
    }
    fs::read(built).unwrap()
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
