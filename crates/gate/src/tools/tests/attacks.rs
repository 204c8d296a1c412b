//! Somebody with write access to the workspace tries to lead the file tools astray. Run as root and as an ordinary user.

use std::{
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mkfifoat, mknodat, renameat_with};

use super::*;
use crate::workspace::{WorkspaceError, tests::Ends};

#[test]
fn a_link_that_leads_out_is_refused_by_every_tool() {
    let lab = Lab::new();
    symlink(lab.outside("secret"), lab.inside("file")).unwrap();
    symlink(lab.outside(""), lab.inside("directory")).unwrap();
    symlink("../outside", lab.inside("relative")).unwrap();
    for (tool, args) in [
        ("fs.read", json!({"path": "file"})),
        ("fs.read", json!({"path": "directory/secret"})),
        ("fs.read", json!({"path": "relative/secret"})),
        ("fs.list", json!({"path": "directory"})),
        ("fs.search", json!({"path": "relative", "pattern": "canary"})),
        ("fs.write", json!({"path": "file", "content": "x"})),
        ("fs.write", json!({"path": "directory/new", "content": "x"})),
        ("fs.write", json!({"path": "relative/new/er", "content": "x", "make_directories": true})),
    ] {
        let refusal = lab.refusal(tool, args.clone());
        assert!(refusal.ends_with("` leads out of the workspace"), "{tool} {args}: {refusal}");
    }
    let found = lab.call("fs.search", json!({"pattern": "canary"})).unwrap();
    assert_eq!(found["matches"], json!([]));
    assert_eq!(lab.call("fs.list", json!({"depth": 9})).unwrap()["entries"].as_array().unwrap().len(), 3);
    assert_eq!(fs::read_dir(lab.outside("")).unwrap().count(), 1);
}

#[test]
fn paths_that_step_upwards_or_start_elsewhere_are_refused() {
    let lab = Lab::new();
    lab.write("a/b", "");
    let read = |path: &str| lab.refusal("fs.read", json!({"path": path}));
    assert_eq!(read("../outside/secret"), "the path `../outside/secret` steps upwards with `..`");
    assert_eq!(read("a/../a/b"), "the path `a/../a/b` steps upwards with `..`");
    assert_eq!(read("/etc/passwd"), "`/etc/passwd` leads out of the workspace");
    let sibling = format!("{}shop/x", lab.workspace.root());
    assert!(read(&sibling).ends_with("leads out of the workspace"));
    assert_eq!(read("a\0b"), "the path `a<U+0000>b` holds a NUL");
    assert_eq!(read("a/b/c"), "`~/a/b/c` does not exist");
}

#[test]
fn the_magic_links_of_proc_lead_nowhere() {
    let lab = Lab::new();
    let targets = ["/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/self/fd/0", "/proc/thread-self/root"];
    for (index, target) in targets.into_iter().enumerate() {
        let name = format!("magic{index}");
        symlink(target, lab.inside(&name)).unwrap();
        assert_eq!(lab.refusal("fs.read", json!({"path": name})), format!("`~/{name}` leads out of the workspace"));
    }
    let climb = format!("{}proc/self/root/etc/passwd", "../".repeat(30));
    symlink(climb, lab.inside("climb")).unwrap();
    assert_eq!(lab.refusal("fs.read", json!({"path": "climb"})), "`~/climb` leads out of the workspace");
    symlink("loop", lab.inside("loop")).unwrap();
    assert_eq!(
        lab.refusal("fs.read", json!({"path": "loop"})),
        "`~/loop` is a loop of links, or a link that may not be followed"
    );
}

#[test]
fn pipes_sockets_and_devices_are_never_opened() {
    let lab = Lab::new();
    mkfifoat(CWD, lab.inside("pipe"), Mode::from_raw_mode(0o666)).unwrap();
    let _socket = UnixListener::bind(lab.inside("socket")).unwrap();
    let mut kinds = vec!["pipe", "socket"];
    if rustix::process::geteuid().is_root() {
        // Only root can make one; what makes it safe is the same look at the kind.
        let null = rustix::fs::makedev(1, 3);
        mknodat(CWD, lab.inside("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), null).unwrap();
        kinds.push("device");
    }
    let started = Instant::now();
    for kind in kinds {
        let refusal = format!("`~/{kind}` is a {kind}, not a file");
        assert_eq!(lab.refusal("fs.read", json!({"path": kind})), refusal);
        assert_eq!(lab.refusal("fs.search", json!({"path": kind, "pattern": "x"})), refusal);
        assert_eq!(lab.refusal("fs.write", json!({"path": kind, "content": "x"})), refusal);
        // The same when it took the place of a file after the decision.
        let work = FileWork::Read { path: absolute(&lab.inside(kind)), offset: 0, limit: None };
        assert!(matches!(lab.perform(&work), Err(FileError::Workspace(WorkspaceError::NotAFile { .. }))));
    }
    lab.call("fs.search", json!({"pattern": "x"})).unwrap();
    symlink("/dev/zero", lab.inside("zero")).unwrap();
    assert_eq!(lab.refusal("fs.read", json!({"path": "zero"})), "`~/zero` leads out of the workspace");
    assert!(started.elapsed() < Duration::from_secs(5), "something blocked");
}

#[test]
fn a_dangling_link_is_not_written_through() {
    let lab = Lab::new();
    symlink("nowhere", lab.inside("inside")).unwrap();
    symlink(lab.outside("new"), lab.inside("outwards")).unwrap();
    symlink("nowhere", lab.inside("directory")).unwrap();
    let write = |path: &str| lab.refusal("fs.write", json!({"path": path, "content": "x", "make_directories": true}));
    assert_eq!(write("inside"), "`inside` is a link to something that does not exist");
    assert_eq!(write("outwards"), "`~/outwards` leads out of the workspace");
    assert_eq!(write("directory/x/y"), "`directory/x/y` is a link to something that does not exist");
    assert!(!lab.outside("new").exists() && !lab.inside("nowhere").exists());
}

#[test]
fn a_swap_after_the_decision_fails_instead_of_leading_elsewhere() {
    let lab = Lab::new();
    lab.write("d/secret", "inside");
    let works = [
        ("fs.read", json!({"path": "d/secret"})),
        ("fs.list", json!({"path": "d"})),
        ("fs.search", json!({"path": "d", "pattern": "canary"})),
        ("fs.write", json!({"path": "d/secret", "content": "x"})),
        ("fs.write", json!({"path": "d/new", "content": "x"})),
        ("fs.write", json!({"path": "d/new/er", "content": "x", "make_directories": true})),
    ]
    .map(|(tool, args)| lab.file_work(tool, args).unwrap());
    fs::rename(lab.inside("d"), lab.inside("elsewhere")).unwrap();
    symlink(lab.outside(""), lab.inside("d")).unwrap();
    for work in &works {
        assert!(matches!(lab.perform(work), Err(FileError::Workspace(WorkspaceError::Changed(_)))), "{work:?}");
    }
    assert_eq!(fs::read_to_string(lab.outside("secret")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(lab.outside("")).unwrap().count(), 1);
}

#[test]
fn a_swap_for_a_link_that_stays_inside_fails_too_because_policy_judged_another_path() {
    let lab = Lab::new();
    lab.write("d/key", "judged");
    lab.write("private/key", CANARY);
    let works = [
        ("fs.read", json!({"path": "d/key"})),
        ("fs.list", json!({"path": "d"})),
        ("fs.search", json!({"path": "d", "pattern": "canary"})),
        ("fs.write", json!({"path": "d/key", "content": "x"})),
    ]
    .map(|(tool, args)| lab.file_work(tool, args).unwrap());
    fs::rename(lab.inside("d"), lab.inside("elsewhere")).unwrap();
    for target in ["private", "state"] {
        symlink(target, lab.inside("d")).unwrap();
        for work in &works {
            assert!(matches!(lab.perform(work), Err(FileError::Workspace(WorkspaceError::Changed(_)))), "{work:?}");
        }
        assert_eq!(lab.content(&format!("{target}/key")), CANARY);
        fs::remove_file(lab.inside("d")).unwrap();
    }
}

#[test]
fn a_file_that_appeared_or_vanished_after_the_decision_is_left_alone() {
    let lab = Lab::new();
    let new = lab.file_work("fs.write", json!({"path": "new", "content": "x"})).unwrap();
    lab.write("old", "old");
    let old = lab.file_work("fs.write", json!({"path": "old", "content": "x"})).unwrap();
    lab.write("new", "somebody else's");
    fs::remove_file(lab.inside("old")).unwrap();
    symlink(lab.outside("secret"), lab.inside("old")).unwrap();
    for work in [&new, &old] {
        assert!(matches!(lab.perform(work), Err(FileError::Workspace(WorkspaceError::Changed(_)))));
    }
    assert_eq!(lab.content("new"), "somebody else's");
    assert_eq!(fs::read_to_string(lab.outside("secret")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(lab.inside("")).unwrap().count(), 3, "a scratch file stayed behind");
}

#[test]
fn swapping_a_directory_and_a_link_never_reveals_or_changes_what_is_outside() {
    let lab = Lab::new();
    lab.write("d/secret", "inside");
    symlink(lab.outside(""), lab.inside("link")).unwrap();
    let done = AtomicBool::new(false);
    let mut succeeded = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, lab.inside("d"), CWD, lab.inside("link"), RenameFlags::EXCHANGE).unwrap();
            }
        });
        let _end = Ends(&done);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            for (tool, args) in [
                ("fs.read", json!({"path": "d/secret"})),
                ("fs.search", json!({"pattern": "canary"})),
                ("fs.list", json!({"path": "d"})),
                ("fs.write", json!({"path": "d/planted", "content": "x"})),
                ("fs.write", json!({"path": "d/secret", "content": "inside"})),
                ("fs.write", json!({"path": "d/a/b", "content": "x", "make_directories": true})),
            ] {
                if let Ok(answer) = lab.call(tool, args) {
                    let answer = answer.to_string();
                    assert!(!answer.contains(CANARY), "{tool}: {answer}");
                    succeeded += 1;
                }
            }
        }
    });
    assert!(succeeded > 0, "the race was never won, so nothing was shown");
    assert_eq!(fs::read_to_string(lab.outside("secret")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(lab.outside("")).unwrap().count(), 1);
}

#[test]
fn a_search_that_is_told_to_stop_does_not_sit_in_a_costly_line() {
    let lab = Lab::new();
    // No automaton of a bearable size knows this expression, so each byte costs a step for each of its repetitions.
    let mut random = 1_u32;
    let mut letter = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if random >> 31 == 0 { b'a' } else { b'b' }
    };
    lab.write("minified.js", (0..4 << 20).map(|_| letter()).collect::<Vec<u8>>());
    let search = |pattern: &str| lab.file_work("fs.search", json!({"pattern": pattern, "regex": true})).unwrap();
    let costly = search("[ab]*a[ab]{300}[^ab]");
    let begun = Instant::now();
    let stop = || begun.elapsed() > Duration::from_secs(1);
    let heed = Heed { stop: &stop, may_read: &|_| true };
    let _ = perform(&costly, &lab.workspace, &OutputCaps::default(), heed);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(lab.perform(&search("c")).unwrap()["truncated"], json!(true), "a line that is searched in part is told");
}

#[test]
fn a_state_directory_inside_the_workspace_is_absent() {
    let lab = Lab::new();
    symlink("state", lab.inside("alias")).unwrap();
    assert_eq!(lab.refusal("fs.read", json!({"path": "state/key"})), "`state/key` does not exist");
    assert_eq!(lab.refusal("fs.read", json!({"path": "alias/key"})), "`alias/key` does not exist");
    assert_eq!(lab.refusal("fs.list", json!({"path": "state"})), "`state` does not exist");
    assert_eq!(lab.refusal("fs.search", json!({"path": "alias", "pattern": "canary"})), "`alias` does not exist");
    assert_eq!(
        lab.call("fs.list", json!({"depth": 5})).unwrap()["entries"],
        json!([{"name": "alias", "kind": "link"}])
    );
    assert_eq!(lab.call("fs.search", json!({"pattern": "canary"})).unwrap()["matches"], json!([]));
    for path in ["state/new", "alias/new", "state/deep/er", "state", "alias/deep/er"] {
        assert!(
            lab.call("fs.write", json!({"path": path, "content": "x", "make_directories": true})).is_err(),
            "{path}"
        );
    }
    assert_eq!(fs::read_dir(lab.inside("state")).unwrap().count(), 1);
    assert!(fs::metadata(lab.inside("state")).unwrap().is_dir());
    let program = lab.inside("state/key");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(lab.process(json!({"command": ["state/key"]})).unwrap_err().ends_with("does not exist"));
}

#[test]
fn a_file_without_permission_is_refused_to_an_ordinary_user() {
    let lab = Lab::new();
    lab.write("closed", "x");
    fs::set_permissions(lab.inside("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let answer = lab.call("fs.read", json!({"path": "closed"}));
    if rustix::process::geteuid().is_root() {
        assert_eq!(answer.unwrap()["content"], json!("x"));
    } else {
        assert!(answer.unwrap_err().starts_with("the system does not give access to"));
    }
}

/// Root passes by permission bits, so everything above runs a second time as somebody who does not.
#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    if !rustix::process::geteuid().is_root() {
        // The tests above ran as an ordinary user already.
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test runs itself again as another user")]
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy).current_dir("/");
    command
        .args(["tools::tests::", "workspace::tests::", "--skip", "all_of_this_holds_for_an_ordinary_user_too"])
        .env("TMPDIR", "/tmp");
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains(" 0 passed"), "{told}");
}
