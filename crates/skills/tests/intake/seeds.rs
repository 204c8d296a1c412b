//! What the changes begin with: the example skills of this repository, and programs of `tests/probes`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use palyra_package::{Need, Package, Sources, imports};

use crate::programs;

/// The manifests of the example skills, and one that says everything.
pub fn manifests() -> Vec<Vec<u8>> {
    let examples = EXAMPLES.iter().map(|name| fs::read(skills().join(name).join("skill.toml")).unwrap());
    examples.chain([EVERYTHING.as_bytes().to_vec()]).collect()
}

/// Small programs: modules, and components.
pub fn programs() -> Vec<Vec<u8>> {
    let all = programs::all();
    SMALL.iter().map(|name| all[*name].clone()).collect()
}

/// Packages of small programs, with what else a package may hold.
pub fn packages() -> Vec<Vec<u8>> {
    let all = programs::all();
    SMALL.iter().zip(EXAMPLES.iter().cycle()).map(|(name, example)| package(&all[*name], example)).collect()
}

/// The packages of the example skills.
pub fn examples() -> Vec<Vec<u8>> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../skills/wasm32-wasip2/release");
    let program = |name: &str| {
        let program = built.join(format!("{}.wasm", name.replace('-', "_")));
        fs::read(&program).unwrap_or_else(|_| panic!("{} is missing: make skills", program.display()))
    };
    EXAMPLES
        .iter()
        .map(|name| {
            let mut files = BTreeMap::new();
            read_below(&skills().join(name), "", &mut files);
            let sources = Sources::of(str::from_utf8(&files["skill.toml"]).unwrap()).unwrap();
            files.insert(sources.program().to_owned(), program(name));
            Package::build(files).unwrap().archive
        })
        .collect()
}

/// A package of a program, with the tools and the prose of an example skill.
fn package(wasm: &[u8], example: &str) -> Vec<u8> {
    let mut files = BTreeMap::new();
    read_below(&skills().join(example), "", &mut files);
    let manifest = String::from_utf8(files.remove("skill.toml").unwrap()).unwrap();
    let (before, _) = manifest.split_once("[capabilities]").unwrap();
    let needs = imports::required(wasm).unwrap().imports;
    let lines: Vec<&str> = needs.values().filter(|&&need| need != Need::Free).map(|need| need.line()).collect();
    files.insert("skill.toml".to_owned(), format!("{before}[capabilities]\n{}\n", lines.join("\n")).into_bytes());
    files.insert("skill.wasm".to_owned(), wasm.to_vec());
    Package::build(files).unwrap().archive
}

fn read_below(directory: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if !entry.path().is_dir() {
            files.insert(name, fs::read(entry.path()).unwrap());
        } else if name == "schemas" || name == "tests" {
            read_below(&entry.path(), &format!("{name}/"), files);
        }
    }
}

fn skills() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills")
}

const EXAMPLES: &[&str] = &["json-query", "text-diff", "web-extract"];

/// Of each kind some: modules and components, that end well, ask for what they were not granted, exit and trap.
const SMALL: &[&str] =
    &["args_sizes_get", "clock_now", "fd_read", "http_fields", "insecure_u64", "kv_get", "proc_exit", "stdout_write"];

const EVERYTHING: &str = r#"
id = "acme/everything"
version = "1.2.3-rc.1"
publisher = "acme"
license = "MIT OR Apache-2.0"
summary = "asks for everything"
description = "More about it."
homepage = "https://example.org/everything"
entry = "program.wasm"
sbom = "sbom.json"

[[tool]]
name = "one"
summary = "does one thing"
description = "More about the one thing."
input = { type = "object", properties = { text = { type = "string", maxLength = 100 } }, required = ["text"] }
output = "schemas/one.json"

[[tool]]
name = "two-2_x"
summary = "does another"
input = { type = "string" }

[capabilities]
log = true
clock = true
random = true
kv = { bytes = 1048576, entries = 1000 }
http = ["example.org:443", "[::1]:8080", "api.example.org:80"]
secrets = { token = "sent to the site" }
files = { notes = "read", drafts = "write" }
inert = ["wasi:filesystem", "wasi:sockets", "wasi:http"]

[limits]
metering = "fuel"
fuel = 1000000
cpu_ms = 100
wall_ms = 1000
memory_bytes = 1048576
table_entries = 100
output_bytes = 1000
host_calls = 10
host_bytes = 1000
log_bytes = 1000

[build]
command = ["cargo", "build"]
output = "target/program.wasm"
"#;
