//! What `process.run` makes of its arguments.

use std::os::unix::fs::{PermissionsExt, symlink};

use palyra_types::{HostName, Sha256Digest, json::canonical_of};

use super::*;
use crate::{
    tool::{IntendError, Script},
    tools::CallError,
};

fn make_executable(lab: &Lab, name: &str) {
    fs::set_permissions(lab.inside(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn real(path: &str) -> AbsolutePath {
    absolute(&fs::canonicalize(path).unwrap())
}

#[test]
fn a_name_is_looked_for_in_the_configured_directories_and_nowhere_else() {
    let lab = Lab::new();
    lab.write("ls", "#!/bin/sh\n");
    make_executable(&lab, "ls");
    assert_eq!(lab.process(json!({"command": ["ls"]})).unwrap().program.as_str(), "/usr/bin/ls");
    let error = lab.process(json!({"command": ["no-such-program"]})).unwrap_err();
    assert!(
        error.starts_with("there is no program `no-such-program` in ") && error.ends_with(":/usr/bin:/bin"),
        "{error}"
    );
    for name in [".", ".."] {
        assert!(lab.process(json!({"command": [name]})).unwrap_err().starts_with("there is no program"));
    }
    assert_eq!(lab.process(json!({"command": [""]})).unwrap_err(), "the command names no program");
}

#[test]
fn a_planted_link_is_seen_as_what_it_leads_to() {
    let lab = Lab::new();
    symlink("/bin/sh", lab.inside("git")).unwrap();
    let work = lab.process(json!({"command": ["./git", "status"]})).unwrap();
    assert_eq!((work.program, work.leads_to, work.argv0.as_str()), (real("/bin/sh"), None, "./git"));
    let absolute_path = lab.inside("git");
    assert_eq!(lab.process(json!({"command": [absolute_path]})).unwrap().program, real("/bin/sh"));
}

#[test]
fn a_program_of_the_search_path_keeps_the_name_it_acts_by() {
    let lab = Lab::new();
    let bin = lab.directory.path().join("bin");
    fs::copy("/bin/true", bin.join("many")).unwrap();
    symlink("many", bin.join("applet")).unwrap();
    let work = lab.process(json!({"command": ["applet"]})).unwrap();
    assert_eq!(work.program.file_name(), "applet");
    assert_eq!(work.leads_to.unwrap().file_name(), "many");
    assert_eq!(work.argv0, "applet");
    // Anybody but root could have put it there.
    assert_eq!(work.program_sha256, Some(Sha256Digest::of(&fs::read("/bin/true").unwrap())));
}

#[test]
fn a_program_of_the_workspace_is_pinned_and_one_of_the_system_is_not() {
    let lab = Lab::new();
    lab.write("tools/build", "#!/bin/sh\necho 1\n");
    assert_eq!(lab.process(json!({"command": ["tools/build"]})).unwrap_err(), "`tools/build` cannot be executed");
    make_executable(&lab, "tools/build");
    let before = lab.process(json!({"command": ["./build"], "cwd": "tools"})).unwrap();
    assert_eq!(before.program, absolute(&lab.inside("tools/build")));
    assert_eq!(before.program_sha256, Some(Sha256Digest::of(b"#!/bin/sh\necho 1\n")));
    lab.write("tools/build", "#!/bin/sh\necho 2\n");
    assert_ne!(lab.process(json!({"command": ["./build"], "cwd": "tools"})).unwrap(), before);
    assert_eq!(lab.process(json!({"command": ["/usr/bin/true"]})).unwrap().program_sha256, None);
    assert_eq!(lab.process(json!({"command": ["./absent"]})).unwrap_err(), "`./absent` does not exist");
    assert_eq!(lab.process(json!({"command": ["../x"]})).unwrap_err(), "the path `../x` steps upwards with `..`");
}

#[test]
fn the_scripts_of_an_interpreter_are_pinned_whatever_options_stand_before_them() {
    let lab = Lab::new();
    lab.write("ci/run.sh", "echo 1");
    let pinned =
        [Script { path: absolute(&lab.inside("ci/run.sh")), sha256: Some(Sha256Digest::of(b"echo 1")), stamp: None }];
    for command in [json!(["sh", "-o", "errexit", "run.sh"]), json!(["env", "sh", "./run.sh"])] {
        assert_eq!(lab.process(json!({"command": command, "cwd": "ci"})).unwrap().scripts, pinned);
    }
    assert_eq!(lab.process(json!({"command": ["cat", "run.sh"], "cwd": "ci"})).unwrap().scripts, []);
    symlink("/bin/sh", lab.inside("ci/git")).unwrap();
    assert_eq!(lab.process(json!({"command": ["./git", "run.sh"], "cwd": "ci"})).unwrap().scripts, pinned);
}

#[test]
fn the_interpreter_of_a_script_is_pinned_unless_only_root_can_change_it_and_the_way_to_it() {
    let lab = Lab::new();
    let scripts = |line: &str| {
        lab.write("run", format!("#!{line}\n"));
        make_executable(&lab, "run");
        lab.process(json!({"command": ["./run"]})).unwrap().scripts
    };
    assert_eq!(scripts("/usr/bin/env sh"), []);
    symlink("/usr/bin/env", lab.inside("link")).unwrap();
    let led = Script { path: real("/usr/bin/env"), sha256: None, stamp: None };
    assert_eq!(scripts(lab.inside("link").to_str().unwrap()), [led]);
    fs::copy("/bin/true", lab.inside("own")).unwrap();
    let sha256 = Some(Sha256Digest::of(&fs::read("/bin/true").unwrap()));
    let own = Script { path: absolute(&lab.inside("own")), sha256, stamp: None };
    assert_eq!(scripts(lab.inside("own").to_str().unwrap()), [own]);
    assert_eq!(scripts("/no/such/interpreter"), [], "it cannot run");
}

#[test]
fn words_reach_the_program_exactly_hidden_characters_included() {
    let lab = Lab::new();
    let word = "a\u{202e}b\u{200b}\u{1b}[31m\n\u{7f} \u{feff}";
    let work = lab.process(json!({"command": ["ls", word], "env": {"NOTE": word}, "stdin": word})).unwrap();
    assert_eq!(work.args, [word]);
    assert_eq!(work.env["NOTE"], word);
    assert_eq!(work.stdin.as_deref(), Some(word.as_bytes()));
    assert_eq!(work.stdin_sha256, Some(Sha256Digest::of(word.as_bytes())));
    assert_eq!(work.process().args, [word]);
    let told: Value = serde_json::from_str(&canonical_of(&work).unwrap()).unwrap();
    assert_eq!((&told["args"][0], told.get("stdin")), (&json!(word), None));
}

#[test]
fn a_nul_is_refused_where_it_stands() {
    let lab = Lab::new();
    assert_eq!(
        lab.process(json!({"command": ["ls", "a\0b"]})).unwrap_err(),
        "`command[1]` holds a NUL; the program would see only what stands before it"
    );
    assert!(lab.process(json!({"command": ["l\0s"]})).unwrap_err().starts_with("`command[0]` holds a NUL"));
    assert!(
        lab.process(json!({"command": ["ls"], "env": {"A": "\0"}}))
            .unwrap_err()
            .starts_with("the variable `A` holds a NUL")
    );
    assert_eq!(lab.process(json!({"command": ["ls"], "cwd": "a\0"})).unwrap_err(), "the path `a<U+0000>` holds a NUL");
}

#[test]
fn variables_that_change_what_runs_and_words_beyond_bounds_are_refused() {
    let lab = Lab::new();
    assert_eq!(
        lab.process(json!({"command": ["ls"], "env": {"LD_PRELOAD": "x.so"}})).unwrap_err(),
        "the variable `LD_PRELOAD` makes the loader run other code in every program"
    );
    assert_eq!(
        lab.process(json!({"command": ["ls", "a".repeat(131_072)]})).unwrap_err(),
        "the words of the command take 131076 bytes; the limit is 131072"
    );
    assert_eq!(
        lab.process(json!({"command": vec!["a"; 1025]})).unwrap_err(),
        "the arguments of `process.run` do not fit: `command` must have at most 1024 items"
    );
}

#[test]
fn each_host_is_judged() {
    let lab = Lab::new();
    let hosts = json!(["Example.org:443", "[2001:db8::7]:80", "example.org:443"]);
    let intent = lab.intend("process.run", json!({"command": ["ls"], "egress_hosts": hosts})).unwrap();
    let touch = |host: &str, port| Touch::Connect(HostName::parse(host).unwrap(), port);
    assert_eq!(intent.touches, [touch("2001:db8::7", 80), touch("example.org", 443)]);
    for text in ["example.org", "example.org:", "example.org:0", "example.org:+1", "2001:db8::7:80", "a:65536", "a:080"]
    {
        let error = lab.process(json!({"command": ["ls"], "egress_hosts": [text]})).unwrap_err();
        assert_eq!(error, format!("`{text}` is not a host and a port"));
    }
    assert!(
        lab.process(json!({"command": ["ls"], "egress_hosts": ["127.1:80"]}))
            .unwrap_err()
            .contains("looks like an address")
    );
}

#[test]
fn the_working_directory_is_real_and_inside() {
    let lab = Lab::new();
    lab.write("real/x", "");
    symlink("real", lab.inside("link")).unwrap();
    symlink(lab.outside(""), lab.inside("out")).unwrap();
    assert_eq!(lab.process(json!({"command": ["ls"], "cwd": "link"})).unwrap().cwd, absolute(&lab.inside("real")));
    let refused = lab.process(json!({"command": ["ls"], "cwd": "out"})).unwrap_err();
    assert!(refused.ends_with("out` leads out of the workspace"), "{refused}");
    assert!(
        lab.process(json!({"command": ["ls"], "cwd": "real/x"})).unwrap_err().ends_with("is a file, not a directory")
    );
}

fn looked_at(lab: &Lab, programs: &SearchPath, look: Look, (tool, args): (&str, Value)) -> Result<Intent, CallError> {
    let args = JsonObject::try_from_value(args, Limits::default()).unwrap();
    let place = Place { workspace: Some(&lab.workspace), asker: asker(), programs, look, bindings: &|_, _| Vec::new() };
    lab.registry.intend(&ToolName::parse(tool).unwrap(), &args, &place)
}

fn of_the_system() -> SearchPath {
    SearchPath::new(["/usr/local/nowhere", "/usr/bin", "/bin"].map(|path| absolute(Path::new(path))).to_vec())
}

#[test]
fn a_glance_tells_policy_what_the_whole_would() {
    let (lab, programs) = (Lab::new(), of_the_system());
    for args in [
        json!({ "command": ["ls", "-l"] }),
        json!({ "command": ["cat", "a b", "\u{202e}"], "env": { "A": "b" }, "egress_hosts": ["example.org:443"] }),
        // In most systems a link that leads elsewhere.
        json!({ "command": ["awk", "BEGIN{}"] }),
        json!({ "command": ["vi"] }),
    ] {
        let whole = looked_at(&lab, &programs, Look::Whole, ("process.run", args.clone()));
        let glance = looked_at(&lab, &programs, Look::Glance, ("process.run", args.clone()));
        match (whole, glance) {
            (_, Err(CallError::Intend(IntendError::TakesLonger))) => {}
            (Err(whole), Err(glance)) => assert_eq!(glance, whole, "{args}"),
            (Ok(whole), Ok(glance)) => {
                let process = |intent: &Intent| match &intent.work {
                    Work::Process(work) => work.process(),
                    other => panic!("{other:?}"),
                };
                assert_eq!((&glance.touches, process(&glance)), (&whole.touches, process(&whole)), "{args}");
            }
            (whole, glance) => panic!("{args}: {whole:?}, at a glance {glance:?}"),
        }
    }
    let found = looked_at(&lab, &programs, Look::Glance, ("process.run", json!({ "command": ["ls"] })));
    assert!(found.is_ok(), "{found:?}");
    let missing = looked_at(&lab, &programs, Look::Glance, ("process.run", json!({ "command": ["no-such-thing"] })));
    assert!(matches!(missing, Err(CallError::Intend(IntendError::ProgramNotFound { .. }))), "{missing:?}");
}

#[test]
fn a_glance_looks_at_nothing_that_others_than_root_can_make_slow() {
    let (lab, programs) = (Lab::new(), of_the_system());
    lab.write("sub/script.sh", "echo");
    let takes_longer = |programs: &SearchPath, tool, args: Value| {
        let looked = looked_at(&lab, programs, Look::Glance, (tool, args.clone()));
        assert_eq!(looked, Err(CallError::Intend(IntendError::TakesLonger)), "{args}");
    };
    takes_longer(&programs, "process.run", json!({ "command": ["ls"], "cwd": "sub" }));
    takes_longer(&programs, "process.run", json!({ "command": ["./script.sh"] }));
    takes_longer(&programs, "process.run", json!({ "command": ["/usr/bin/ls"] }));
    takes_longer(&programs, "process.run", json!({ "command": ["sh", "sub/script.sh"] }));
    takes_longer(&programs, "fs.read", json!({ "path": "sub/script.sh" }));
    // Anybody can put something there.
    takes_longer(&lab.programs, "process.run", json!({ "command": ["ls"] }));
}
