//! What programs import, and what their manifests then have to ask for.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::capability::{Destination, FileAccess, KvQuota};

/// A component that exports `run` with this type of error, and imports these interfaces.
fn component(imports: &[&str], error: &str) -> Vec<u8> {
    let imports: String = imports.iter().map(|name| format!("(import \"{name}\" (instance))\n")).collect();
    wat(&format!(
        r#"(component
            {imports}
            (type $failure' (record (field "code" string) (field "message" string)))
            (export $failure "failure" (type $failure'))
            (core module $m
                (memory (export "memory") 1)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
                (func (export "run") (param i32 i32 i32 i32) (result i32) unreachable))
            (core instance $i (instantiate $m))
            (alias core export $i "memory" (core memory $memory))
            (alias core export $i "realloc" (core func $realloc))
            (func (export "run") (param "tool" string) (param "input" string) (result (result string (error {error})))
                (canon lift (core func $i "run") (memory (core memory $memory)) (realloc (core func $realloc)))))"#
    ))
}

fn module(imports: &[&str]) -> Vec<u8> {
    let imports: String = imports
        .iter()
        .map(|name| {
            let (module, function) = name.rsplit_once('.').unwrap();
            format!("(import \"{module}\" \"{function}\" (func))\n")
        })
        .collect();
    wat(&format!("(module {imports} (memory (export \"memory\") 1) (func (export \"_start\")))"))
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn needs(list: &[(&str, Need)]) -> BTreeMap<String, Need> {
    list.iter().map(|(name, need)| ((*name).to_owned(), *need)).collect()
}

const FAILURE: &str = "$failure";

#[test]
fn a_skill_of_either_version_is_told_by_how_it_fails() {
    let expected = |world| Required { form: Form::Component, world, imports: BTreeMap::new() };
    assert_eq!(required(&component(&[], FAILURE)), Ok(expected(World::Skill1)));
    assert_eq!(required(&component(&[], "string")), Ok(expected(World::Skill01)));
    assert_eq!(required(&component(&[], "u32")), Err(ImportsError::OtherRun));
}

#[test]
fn a_run_of_another_shape_is_refused() {
    let run = |kind: &str| {
        required(&wat(&format!(
            r#"(component
                (core module $m (memory (export "memory") 1)
                    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
                    (func (export "one") (param i32 i32) (result i32) unreachable)
                    (func (export "two") (param i32 i32 i32 i32) (result i32) unreachable)
                    (func (export "none")))
                (core instance $i (instantiate $m))
                (alias core export $i "memory" (core memory $memory))
                (alias core export $i "realloc" (core func $realloc))
                {kind})"#
        )))
    };
    let lifted = |name: &str, signature: &str| {
        let options = "(memory (core memory $memory)) (realloc (core func $realloc))";
        run(&format!("(func (export \"run\") {signature} (canon lift (core func $i \"{name}\") {options}))"))
    };
    let answer = "(result (result string (error string)))";
    let both = "(param \"tool\" string) (param \"input\" string)";
    assert_eq!(lifted("two", &format!("{both} {answer}")).unwrap().world, World::Skill01);
    for (name, signature) in [
        ("one", format!("(param \"input\" string) {answer}")),
        ("two", format!("(param \"input\" string) (param \"tool\" string) {answer}")),
        ("two", format!("{both} (result string)")),
        ("two", format!("{both} (result (result string))")),
        ("two", format!("{both} (result (result (list u8) (error string)))")),
        ("none", String::new()),
    ] {
        assert_eq!(lifted(name, &signature), Err(ImportsError::OtherRun), "{signature}");
    }
    assert_eq!(run(""), Err(ImportsError::NoWorld));
    assert_eq!(required(&wat("(component)")), Err(ImportsError::NoWorld));
    assert_eq!(required(&wat("(component (instance $i) (export \"run\" (instance $i)))")), Err(ImportsError::OtherRun));
}

#[test]
fn a_command_is_a_component_that_exports_the_way_into_one_or_a_module_with_a_start() {
    let command = |name: &str| required(&wat(&format!("(component (instance $i) (export \"{name}\" (instance $i)))")));
    assert_eq!(command("wasi:cli/run@0.2.3").unwrap().world, World::Command);
    assert_eq!(command("wasi:cli/run@0.3.0"), Err(ImportsError::NoWorld));
    assert_eq!(command("wasi:cli/runs@0.2.0"), Err(ImportsError::NoWorld));
    let expected = Required { form: Form::Module, world: World::Command, imports: BTreeMap::new() };
    assert_eq!(required(&module(&[])), Ok(expected));
    assert_eq!(required(&wat("(module)")), Err(ImportsError::NoWorld));
    assert_eq!(required(&wat("(module (func (export \"_start\") (param i32)))")), Err(ImportsError::OtherStart));
    assert_eq!(required(&wat("(module (memory (export \"_start\") 1))")), Err(ImportsError::OtherStart));
}

#[test]
fn every_interface_is_sorted_by_what_it_takes() {
    let sorted = [
        ("palyra:skill/types@1.0.0", Need::Free),
        ("palyra:skill/log@1.0.0", Need::Log),
        ("palyra:skill/clock@1.0.0", Need::Clock),
        ("palyra:skill/random@1.0.0", Need::Random),
        ("palyra:skill/http@1.0.0", Need::Http),
        ("palyra:skill/kv@1.0.0", Need::Kv),
        ("palyra:skill/secrets@1.0.0", Need::Secrets),
        ("palyra:skill/files@1.0.0", Need::Files),
        ("wasi:io/streams@0.2.6", Need::Free),
        ("wasi:cli/environment@0.2.0", Need::Free),
        ("wasi:random/insecure@0.2.0", Need::Free),
        ("wasi:random/insecure-seed@0.2.0", Need::Free),
        ("wasi:random/random@0.2.0", Need::Random),
        ("wasi:clocks/wall-clock@0.2.0", Need::Clock),
        ("wasi:clocks/monotonic-clock@0.2.0", Need::Clock),
        ("wasi:filesystem/preopens@0.2.0", Need::InertFilesystem),
        ("wasi:sockets/tcp@0.2.0", Need::InertSockets),
        ("wasi:http/outgoing-handler@0.2.0", Need::InertHttp),
    ];
    let names = sorted.map(|(name, _)| name);
    assert_eq!(required(&component(&names, FAILURE)).unwrap().imports, needs(&sorted));
}

#[test]
fn every_function_of_preview_1_is_sorted_by_what_it_takes() {
    let free = [
        "args_get",
        "args_sizes_get",
        "environ_get",
        "environ_sizes_get",
        "fd_read",
        "fd_write",
        "fd_close",
        "fd_seek",
        "fd_fdstat_get",
        "fd_fdstat_set_flags",
        "fd_prestat_get",
        "fd_prestat_dir_name",
        "proc_exit",
        "proc_raise",
        "sched_yield",
    ];
    let files = [
        "fd_advise",
        "fd_allocate",
        "fd_datasync",
        "fd_fdstat_set_rights",
        "fd_filestat_get",
        "fd_filestat_set_size",
        "fd_filestat_set_times",
        "fd_pread",
        "fd_pwrite",
        "fd_readdir",
        "fd_renumber",
        "fd_sync",
        "fd_tell",
        "path_create_directory",
        "path_filestat_get",
        "path_filestat_set_times",
        "path_link",
        "path_open",
        "path_readlink",
        "path_remove_directory",
        "path_rename",
        "path_symlink",
        "path_unlink_file",
    ];
    let all = (free.iter().map(|name| (name, Need::Free)))
        .chain(files.iter().map(|name| (name, Need::InertFilesystem)))
        .chain(["clock_res_get", "clock_time_get", "poll_oneoff"].iter().map(|name| (name, Need::Clock)))
        .chain([("random_get")].iter().map(|name| (name, Need::Random)))
        .chain(
            ["sock_accept", "sock_recv", "sock_send", "sock_shutdown"].iter().map(|name| (name, Need::InertSockets)),
        );
    let sorted: BTreeMap<String, Need> =
        all.map(|(name, need)| (format!("{}.{name}", preview1::MODULE), need)).collect();
    assert_eq!(sorted.len(), 46, "preview 1 has 46 functions");
    let names: Vec<&str> = sorted.keys().map(String::as_str).collect();
    assert_eq!(required(&module(&names)).unwrap().imports, sorted);
}

#[test]
fn what_no_skill_may_import_is_refused_by_its_name() {
    for name in [
        "palyra:skill/exec@1.0.0",
        "wasi:nn/graph@0.2.0",
        "acme:own/thing@1.0.0",
        "wasi:random/raw@0.2.0",
        "wasi:io/streams",
        "x",
    ] {
        assert_eq!(required(&component(&[name], FAILURE)), Err(ImportsError::Foreign { import: name.to_owned() }));
    }
    for (name, known) in [
        ("palyra:skill/log@2.0.0", "1.0"),
        ("palyra:skill/log@1.1.0", "1.0"),
        ("palyra:skill/log@0.1.0", "1.0"),
        ("wasi:io/streams@0.3.0", "0.2"),
        ("wasi:io/streams@0.2.0-rc-2023-11-10", "0.2"),
    ] {
        let refusal = ImportsError::ForeignVersion { import: name.to_owned(), known };
        assert_eq!(required(&component(&[name], FAILURE)), Err(refusal));
    }
    for import in ["wasi_unstable.fd_write", "env.abort", "wasi_snapshot_preview1.fd_exec"] {
        assert_eq!(required(&module(&[import])), Err(ImportsError::Foreign { import: import.to_owned() }));
    }
    for (import, kind) in
        [("f", "(func)"), ("m", "(core module)"), ("c", "(component)"), ("r", "(type (sub resource))")]
    {
        let text = format!("(component (import \"{import}\" {kind}))");
        assert_eq!(required(&wat(&text)), Err(ImportsError::Foreign { import: import.to_owned() }), "{kind}");
    }
    let memory = wat("(module (import \"wasi_snapshot_preview1\" \"fd_write\" (memory 1)))");
    assert!(matches!(required(&memory), Err(ImportsError::NoWorld | ImportsError::Foreign { .. })));
    let memory = wat("(module (import \"wasi_snapshot_preview1\" \"fd_write\" (memory 1)) (func (export \"_start\")))");
    assert_eq!(required(&memory), Err(ImportsError::Foreign { import: "wasi_snapshot_preview1.fd_write".to_owned() }));
}

#[test]
fn imports_between_the_parts_of_a_component_are_its_own_business() {
    let binary = wat(r#"(component
            (component $inner (import "env:own/thing" (instance)))
            (core module $m (import "env" "f" (func)))
            (instance $i)
            (export "wasi:cli/run@0.2.0" (instance $i)))"#);
    assert_eq!(required(&binary).unwrap().imports, BTreeMap::new());
}

#[test]
fn features_that_skills_may_not_use_are_refused() {
    for (what, body) in [
        ("threads", "(memory 1 1 shared)"),
        ("64-bit memory", "(memory i64 1)"),
        ("exceptions", "(tag)"),
        ("garbage collection", "(type (struct))"),
        ("external references", "(func (param externref))"),
        ("typed references", "(type $f (func)) (func (param (ref $f)))"),
    ] {
        let binary = wat(&format!("(module {body} (func (export \"_start\")))"));
        assert!(matches!(required(&binary), Err(ImportsError::Invalid { .. })), "{what}");
    }
    for body in ["(func (param v128))", "(table 1 funcref)", "(memory 1) (memory 1)", "(func (return_call 0))"] {
        let binary = wat(&format!("(module {body} (func (export \"_start\")))"));
        assert_eq!(required(&binary).map(|required| required.world), Ok(World::Command), "{body}");
    }
    let asynchronous = wat("(component (type (future u32)))");
    assert!(matches!(required(&asynchronous), Err(ImportsError::Invalid { .. })));
}

#[test]
fn what_is_broken_is_refused() {
    assert_eq!(required(b""), Err(ImportsError::NotWasm));
    assert_eq!(required(b"#!/bin/sh"), Err(ImportsError::NotWasm));
    assert_eq!(required(b"\0asm\x02\0\0\0"), Err(ImportsError::NotWasm));
    let whole = component(&["wasi:io/streams@0.2.0"], FAILURE);
    for length in 8..whole.len() {
        // Only the names at the end, which are for debugging, can be missed.
        let cut = required(&whole[..length]);
        assert!(cut.is_err() || (cut == required(&whole) && length + 100 > whole.len()), "{length} of {}", whole.len());
    }
    let ill_typed = wat("(module (func (export \"_start\") i32.add drop))");
    assert!(matches!(check_code(&ill_typed), Err(ImportsError::Invalid { .. })), "function bodies are validated too");
    assert!(required(&ill_typed).is_ok(), "whoever takes it in leaves them to the compiler");
    let inner = wat(
        "(component (core module (func i32.add drop)) (instance $i) (export \"wasi:cli/run@0.2.0\" (instance $i)))",
    );
    assert!(matches!(check_code(&inner), Err(ImportsError::Invalid { .. })), "those of inner modules as well");
    let names: Vec<String> = (0..600).map(|number| format!("wasi:io/i{number}@0.2.0")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(required(&component(&names, FAILURE)), Err(ImportsError::TooManyImports));
}

/// Branches to sixty thousand places, each with a thousand values to check: a second for every hundred kilobytes.
#[test]
fn a_program_that_takes_long_to_validate_is_read_at_once() {
    let values = "i32 ".repeat(1_000);
    let targets = "0 ".repeat(60_000);
    let slow = wat(&format!(
        "(module (memory (export \"memory\") 1) (func (export \"_start\")) (func $many (result {values}) (unreachable)) \
         (func (result {values}) (block (result {values}) (call $many) (i32.const 0) (br_table {targets}))))"
    ));
    let begun = std::time::Instant::now();
    assert!(required(&slow).is_ok());
    assert!(begun.elapsed() < std::time::Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[test]
fn a_manifest_that_asks_for_less_is_told_which_lines_to_add() {
    let required = required(&component(
        &[
            "palyra:skill/kv@1.0.0",
            "wasi:clocks/wall-clock@0.2.0",
            "palyra:skill/clock@1.0.0",
            "wasi:filesystem/types@0.2.0",
        ],
        FAILURE,
    ))
    .unwrap();
    let missing: Vec<String> =
        required.missing_from(&Capabilities::default()).iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        [
            "its program imports `palyra:skill/clock@1.0.0` and 1 more: add `clock = true` to [capabilities] in skill.toml",
            "its program imports `palyra:skill/kv@1.0.0`: add `kv = { bytes = 1048576, entries = 1000 }` to [capabilities] in skill.toml",
            "its program imports `wasi:filesystem/types@0.2.0`: add `inert = [\"wasi:filesystem\"]` to [capabilities] in skill.toml",
        ]
    );
    let asked = Capabilities {
        clock: true,
        kv: Some(KvQuota { bytes: 1, entries: 1 }),
        inert: BTreeSet::from(["wasi:filesystem".to_owned()]),
        ..Capabilities::default()
    };
    assert_eq!(required.missing_from(&asked), []);
    let other = Capabilities { inert: BTreeSet::from(["wasi:sockets".to_owned()]), ..asked };
    let missing = Missing { need: Need::InertFilesystem, imports: vec!["wasi:filesystem/types@0.2.0".to_owned()] };
    assert_eq!(required.missing_from(&other), [missing]);
}

#[test]
fn the_line_that_is_told_is_the_line_that_helps() {
    for &need in Need::ALL.iter().filter(|&&need| need != Need::Free) {
        assert!(!need.is_asked_for_by(&Capabilities::default()), "{need}");
        let asked: Capabilities = toml::from_str(need.line()).unwrap();
        assert_eq!(asked.check(), Ok(()), "{need}");
        assert!(need.is_asked_for_by(&asked), "{need}");
    }
    assert!(Need::Free.is_asked_for_by(&Capabilities::default()));
    let files = Capabilities { files: [("a".to_owned(), FileAccess::Read)].into(), ..Capabilities::default() };
    assert!(Need::Files.is_asked_for_by(&files) && !Need::InertFilesystem.is_asked_for_by(&files));
    let http = Capabilities { http: [Destination::parse("a:1").unwrap()].into(), ..Capabilities::default() };
    assert!(Need::Http.is_asked_for_by(&http) && !Need::InertHttp.is_asked_for_by(&http));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..512), kind in 0_u8..3) {
        let head: &[u8] = match kind { 0 => b"", 1 => b"\0asm\x01\0\0\0", _ => b"\0asm\x0d\0\x01\0" };
        let _ = required(&[head, &bytes].concat());
    }

    #[test]
    fn a_changed_component_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut binary = component(&["wasi:io/streams@0.2.0", "palyra:skill/kv@1.0.0"], FAILURE);
        for (at, value) in changes {
            let at = at.index(binary.len());
            binary[at] = value;
        }
        let _ = required(&binary);
    }
}

#[test]
fn many_instances_of_a_component_with_many_types_are_refused_before_they_are_made() {
    let program = |types: usize, instances: usize| {
        let types: String =
            (0..types).map(|n| format!("(type $t{n} (tuple (own $r) u8)) (export \"x{n}\" (type $t{n}))")).collect();
        let instances = "(instance (instantiate $c (with \"r\" (type $res))))".repeat(instances);
        let many = format!(
            "(component $c (import \"r\" (type $r (sub resource))) {types}) (type $res (resource (rep i32))) {instances}"
        );
        wat::parse_str(format!("(component {many})")).unwrap()
    };
    let begun = std::time::Instant::now();
    assert_eq!(required(&program(2_000, 900)), Err(ImportsError::TooIntricate));
    assert_eq!(required(&program(20, 20)), Err(ImportsError::NoWorld));
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
