//! What was looked at is what runs: programs, interpreters, scripts and directories that are exchanged before the start.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::symlink},
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use palyra_sandbox::{
    Ended, Executable, Outcome, PinnedFile, ProcessPlan, ProgramFiles, RunInput, SandboxProcessRunError,
    SandboxProcessRunErrorKind as Kind,
};
use palyra_types::digest::Sha256Digest;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use tokio::{sync::Mutex, time::timeout};

use crate::lab::{self, Held, Lab, absolute, text};

/// Every test takes it: which init waits for whom cannot be told while another test has one, too.
static ALONE: Mutex<()> = Mutex::const_new(());

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_program_that_is_exchanged_after_the_check_does_not_run() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let (good, evil) = (lab.program("good", "/bin/true"), lab.program("evil", "/bin/false"));
    let plan = lab.plan(good.to_str().unwrap(), &[]);
    let outcome = with_a_change(&lab, &plan, RunInput::default(), || fs::rename(&evil, &good).unwrap()).await;
    assert_eq!(outcome.unwrap().ended, Ended::Exited(0));
    assert_eq!(lab.run(&plan).await.ended, Ended::Exited(1), "the other one is there now");
}

#[tokio::test]
async fn a_program_in_a_tree_of_files_of_its_own_does_not_pass_for_one_of_this_machine() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    fs::create_dir_all(lab.workspace().join("usr/bin")).unwrap();
    lab.program("usr/bin/true", "/bin/false");
    // A copy of the mount, attached nowhere: seen from there, the workspace is the root of everything.
    let detach =
        r#"$| = 1; my $here = "."; my $tree = syscall 428, -100, $here, 1; print "$$ $tree up\n"; exec "sleep", "60""#;
    let mut plan = lab.plan("/usr/bin/unshare", &["-rm", "--propagation=unchanged", "perl", "-e", detach]);
    plan.env.insert("PATH".to_owned(), lab::SEARCH_PATH.to_owned());
    let mut running = lab.start(&plan).await;
    let said = lab::wait_for(&mut running, "up").await;
    let (process, tree) = said.trim_end_matches(" up\n").split_once(' ').unwrap();
    while fs::read_to_string(format!("/proc/{process}/comm")).unwrap() != "sleep\n" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let disguised = PathBuf::from(format!("/proc/{process}/fd/{tree}/usr/bin/true"));
    assert!(fs::metadata(&disguised).is_ok(), "{disguised:?} is within reach");
    let script = lab.executable("script", &format!("#!{}\n", disguised.display()));
    for program in [&disguised, &script] {
        let opened = Executable::open(&absolute(program));
        assert_eq!(opened.unwrap_err().kind, Kind::ProgramNotFound, "{program:?}");
    }
}

#[tokio::test]
async fn an_interpreter_that_is_exchanged_after_the_check_does_not_run() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let (good, evil) = (lab.program("good", "/bin/true"), lab.program("evil", "/bin/false"));
    let link = lab.workspace().join("link");
    symlink(&good, &link).unwrap();
    let script = lab.executable("script", &format!("#!{}\n", link.display()));
    let plan = lab.plan(script.to_str().unwrap(), &[]);
    let outcome = with_a_change(&lab, &plan, RunInput::default(), || {
        fs::remove_file(&link).unwrap();
        symlink(&evil, &link).unwrap();
    })
    .await;
    assert_eq!(outcome.unwrap().ended, Ended::Exited(0));
    assert_eq!(lab.run(&plan).await.ended, Ended::Exited(1), "the other one is there now");
}

#[tokio::test]
async fn a_pinned_file_that_changes_in_any_way_stops_the_start() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let marker = lab.workspace().join("marker");
    let touching = format!("#!/bin/sh\n: > {}\n", marker.display());
    for by_renaming in [false, true] {
        let program = lab.program("program", "/bin/true");
        let script = lab.executable("script", "#!/bin/sh\nexit 0\n");
        let interpreter = lab.program("interpreter", "/bin/true");
        let interpreted = lab.executable("interpreted", &format!("#!{}\n", interpreter.display()));
        let evil = (lab.program("evil", "/bin/false"), lab.executable("evil-script", &touching));
        for (runs, changes, to) in
            [(&program, &program, &evil.0), (&script, &script, &evil.1), (&interpreted, &interpreter, &evil.0)]
        {
            let plan = lab.plan(runs.to_str().unwrap(), &[]);
            let expected = pinned(runs, &[&interpreter]);
            let pinned = || RunInput { program: expected.clone(), ..RunInput::default() };
            assert_eq!(lab.try_run_with(&plan, pinned()).await.unwrap().ended, Ended::Exited(0), "{runs:?}");
            let refused = with_a_change(&lab, &plan, pinned(), || match by_renaming {
                true => fs::rename(lab::copy_beside(to), changes).unwrap(),
                false => lab::overwrite(changes, to),
            })
            .await
            .unwrap_err();
            assert_eq!(refused.kind, Kind::Changed, "{changes:?}: {refused}");
            let refused = lab.try_run_with(&plan, pinned()).await.unwrap_err();
            assert_eq!(refused.kind, Kind::Changed, "{changes:?} before the check: {refused}");
        }
    }
    assert!(!marker.exists());
}

#[tokio::test]
async fn a_file_that_is_not_pinned_by_content_must_be_out_of_everybodys_reach() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let kind = async |program: &Path, expected: ProgramFiles| {
        let input = RunInput { program: expected, ..RunInput::default() };
        lab.try_run_with(&lab.plan(program.to_str().unwrap(), &[]), input).await.map_err(|error| error.kind)
    };
    let only = |path: &Path| ProgramFiles::Pinned { program: as_it_is(path), interpreters: Vec::new() };
    assert_eq!(kind("/bin/true".as_ref(), only("/bin/true".as_ref())).await.unwrap().ended, Ended::Exited(0));
    let own = lab.program("own", "/bin/true");
    assert_eq!(kind(&own, only(&own)).await, Err(Kind::Changed));
    let link = lab.workspace().join("link");
    symlink("/bin/true", &link).unwrap();
    assert_eq!(kind(&link, only("/bin/true".as_ref())).await.unwrap().ended, Ended::Exited(0));
    assert_eq!(kind(&link, only("/bin/false".as_ref())).await, Err(Kind::Changed), "it leads elsewhere");
    // The script is known, but not where its interpreter's name leads.
    let script = lab.executable("script", &format!("#!{}\n", link.display()));
    assert_eq!(kind(&script, pinned(&script, &[])).await, Err(Kind::Changed));
    let led = ProgramFiles::Pinned { program: by_content(&script), interpreters: vec![as_it_is("/bin/true".as_ref())] };
    assert_eq!(kind(&script, led).await.unwrap().ended, Ended::Exited(0));
    let plain = lab.executable("plain", "#!/bin/sh\nexit 7\n");
    assert_eq!(kind(&plain, pinned(&plain, &[])).await.unwrap().ended, Ended::Exited(7));
}

#[tokio::test]
async fn under_a_storm_of_exchanges_only_what_was_pinned_runs() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let (good, evil) = (lab.program("good", "/bin/true"), lab.program("evil", "/bin/false"));
    let plan = lab.plan(good.to_str().unwrap(), &[]);
    let expected = pinned(&good, &[]);
    let _storm = Storm::begin(good, evil);
    let (mut ran, mut refused) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let input = RunInput { program: expected.clone(), ..RunInput::default() };
        match lab.try_run_with(&plan, input).await {
            Ok(outcome) if outcome.ended == Ended::Exited(0) => ran += 1,
            Err(error) if error.kind == Kind::Changed => refused += 1,
            other => panic!("after {ran} runs and {refused} refusals: {other:?}"),
        }
    }
    println!("{ran} ran, {refused} were refused");
    assert!(refused > 0, "nothing was ever exchanged in time");
}

#[tokio::test]
async fn the_working_directory_is_the_one_that_was_checked() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let inner = lab.workspace().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("name"), "good").unwrap();
    let evil = lab.outside().join("evil");
    fs::create_dir_all(evil.join("inner")).unwrap();
    fs::write(evil.join("inner/name"), "evil").unwrap();
    let mut plan = lab.plan("/bin/cat", &["name"]);
    plan.cwd = absolute(&inner);
    let (workspace, aside) = (lab.workspace(), lab.outside().join("aside"));
    let exchange = || {
        fs::rename(&workspace, &aside).unwrap();
        symlink(&evil, &workspace).unwrap();
    };
    // Opened when the plan was made, exchanged before the start.
    let opened = || Some(open(&inner));
    let directory = opened();
    let outcome = with_a_change(&lab, &plan, RunInput { directory, ..RunInput::default() }, exchange).await.unwrap();
    assert_eq!(text(&outcome.stdout.bytes), "good");
    // By now the directory that was opened is not where the plan says.
    let directory = Some(open(&aside.join("inner")));
    let refused = lab.try_run_with(&plan, RunInput { directory, ..RunInput::default() }).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Changed, "{refused}");
    // Nor is one that leads there by a link.
    let refused = lab.try_run_with(&plan, RunInput { directory: opened(), ..RunInput::default() }).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Changed, "{refused}");
}

#[tokio::test]
async fn a_working_directory_whose_path_is_exchanged_is_not_followed() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let (inner, evil) = (lab.workspace().join("inner"), lab.outside().join("evil"));
    for (directory, name) in [(&inner, "good"), (&evil, "evil")] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("name"), name).unwrap();
    }
    let mut plan = lab.plan("/bin/cat", &["name"]);
    plan.cwd = absolute(&inner);
    let outcome = with_a_change(&lab, &plan, RunInput::default(), || {
        fs::rename(&inner, lab.workspace().join("aside")).unwrap();
        symlink(&evil, &inner).unwrap();
    })
    .await;
    assert_eq!(text(&outcome.unwrap().stdout.bytes), "good");
    assert_eq!(lab.try_run(&plan).await.unwrap_err().kind, Kind::OutsideWorkspace);
}

#[tokio::test]
async fn a_first_line_means_what_it_means_to_the_kernel() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let echo = "/bin/echo";
    let long = |length: usize| format!("#!/{}bin/echo", "/".repeat(length));
    let nested = lab.executable("nested", &format!("#!{echo} of the nested one\n"));
    let deep: Vec<PathBuf> = (0..6).fold(vec![nested.clone()], |mut all, depth| {
        let line = format!("#!{} {depth}\n", all.last().unwrap().display());
        all.push(lab.executable(&format!("deep{depth}"), &line));
        all
    });
    let mut lines = vec![
        format!("#!{echo}\n"),
        format!("#!{echo}"),
        format!("#! \t {echo}\t \n"),
        format!("#!{echo} one  two\tthree \t\nmore"),
        format!("#!{echo} one\0two\n"),
        format!("#!{echo}\0one\n"),
        format!("#!{echo} \0\n"),
        format!("#!{echo}\r\n"),
        format!("#!{} of nested\n", nested.display()),
        "#!\n".to_owned(),
        "#!".to_owned(),
        "#! \t \n".to_owned(),
        "#!/no/such/file\n".to_owned(),
        "#!/tmp\n".to_owned(),
        "# no script\n".to_owned(),
        format!("#!{echo} {}\n", "x".repeat(300)),
        format!("#!{echo} {}", "x ".repeat(200)),
        format!("#!{}{echo}\n", " ".repeat(300)),
    ];
    lines.extend((230..260).flat_map(|length| [format!("{}\n", long(length)), format!("{} x\n", long(length))]));
    lines.extend(deep.iter().map(|script| format!("#!{}\n", script.display())));
    for (number, line) in lines.iter().enumerate() {
        let script = lab.executable(&format!("script{number}"), line);
        let ours = lab.try_run(&lab.plan(script.to_str().unwrap(), &["a b", ""])).await;
        let ours = ours.ok().map(|outcome| String::from_utf8(outcome.stdout.bytes).unwrap());
        assert_eq!(ours, lab::output_of(&script, &["a b", ""]), "{line:?}");
    }
}

/// Two files that change places all the time, until it is dropped.
struct Storm {
    over: Arc<AtomicBool>,
    exchanging: Option<JoinHandle<()>>,
}

impl Storm {
    fn begin(one: PathBuf, other: PathBuf) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let exchanging = thread::spawn(move || {
            // Sometimes there is time for a whole run, sometimes not even for a look.
            for pause in [0, 100, 300, 1_000, 3_000, 10_000, 80_000].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                thread::sleep(Duration::from_micros(pause));
            }
        });
        Self { over, exchanging: Some(exchanging) }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.exchanging.take().map(JoinHandle::join);
    }
}

/// Runs a plan. Between the check and the start something changes: the process that gets the order sleeps until then.
async fn with_a_change(
    lab: &Lab,
    plan: &ProcessPlan,
    input: RunInput,
    change: impl FnOnce(),
) -> Result<Outcome, SandboxProcessRunError> {
    let held = Held::the_next_tools().await;
    let mut starting = pin!(lab.runner.start(plan, input));
    // Until it waits for the init, unless it has more to read than it has time for.
    if let Ok(started) = timeout(Duration::from_millis(200), &mut starting).await {
        return Ok(started?.outcome().await);
    }
    change();
    drop(held);
    Ok(starting.await?.outcome().await)
}

fn pinned(program: &Path, interpreters: &[&Path]) -> ProgramFiles {
    let interpreters = interpreters.iter().map(|path| by_content(path)).collect();
    ProgramFiles::Pinned { program: by_content(program), interpreters }
}

fn by_content(path: &Path) -> PinnedFile {
    PinnedFile { sha256: Some(Sha256Digest::of(&fs::read(path).unwrap())), ..as_it_is(path) }
}

fn as_it_is(path: &Path) -> PinnedFile {
    PinnedFile { path: absolute(&fs::canonicalize(path).unwrap()), sha256: None }
}

fn open(directory: &Path) -> OwnedFd {
    rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}
