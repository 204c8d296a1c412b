//! What the tests of the runner share: a workspace, plans for it, and an eye on what is left behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use palyra_sandbox::{
    Containment, EgressPlan, EnclosurePlan, Interpreters, Limits, Outcome, ProcessPlan, RunInput, RunningProcess,
    SandboxProcessRunError, SandboxProcessRunner, UnixSockets, run_constrained_process,
    tier_c::{TierCOptions, linux::LinuxOptions, stock::WarmOptions},
};
use palyra_types::{path::AbsolutePath, sandbox::EgressEnforcementMode};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// How many inits wait for a call.
pub const WAITING: usize = 2;

/// The first user of enclosures, where the tests run as root.
pub const FIRST_USER: u32 = 1_900_000_000;

/// Where shells look for programs.
pub const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A workspace and a runner.
pub struct Lab {
    directory: tempfile::TempDir,
    pub runner: SandboxProcessRunner,
    /// A variable of every plan, by which its processes are known.
    pub mark: String,
}

impl Lab {
    /// A lab with tier C.
    pub fn enclosed() -> Self {
        let lab = Self::new();
        let options = lab.tier_c_options();
        Self { runner: lab.runner.with_tier_c(&options), ..lab }
    }

    pub fn tier_c_options(&self) -> TierCOptions {
        let directory = self.outside().join("tier-c");
        TierCOptions {
            linux: LinuxOptions {
                bubblewrap: None,
                directory,
                first_user: FIRST_USER,
                require_cgroup: false,
                trust: Vec::new(),
                read_only: Vec::new(),
            },
            warm: WarmOptions { each: 2, most: 4, idle: Duration::from_secs(60) },
        }
    }

    /// The same plan in an enclosure without network.
    pub fn enclose(&self, plan: ProcessPlan) -> ProcessPlan {
        let enclosure = EnclosurePlan {
            read_only: Vec::new(),
            temporary_bytes: 64 << 20,
            unix_sockets: UnixSockets::Refuse,
            ports: BTreeSet::from([80, 443]),
            intercepts: false,
        };
        ProcessPlan {
            containment: Containment::Enclosure(enclosure),
            egress: EgressPlan { mode: EgressEnforcementMode::Strict, hosts: Vec::new() },
            ..plan
        }
    }

    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("workspace")).unwrap();
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { directory, runner: SandboxProcessRunner::new([]).unwrap(), mark }
    }

    /// The directory above the workspace.
    pub fn outside(&self) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap()
    }

    pub fn workspace(&self) -> PathBuf {
        self.outside().join("workspace")
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.workspace().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn executable(&self, name: &str, text: &str) -> PathBuf {
        let written = self.file(&format!("{name}.text"), text);
        let path = self.workspace().join(name);
        copy(&written, &path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A copy of a program, in the workspace.
    pub fn program(&self, name: &str, of: &str) -> PathBuf {
        let path = self.workspace().join(name);
        copy(of.as_ref(), &path);
        path
    }

    /// A plan for a program with nothing but the mark in its environment.
    pub fn plan(&self, program: &str, args: &[&str]) -> ProcessPlan {
        ProcessPlan {
            program: absolute(Path::new(program)),
            argv0: None,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            cwd: absolute(&self.workspace()),
            env: BTreeMap::from([("MARK".to_owned(), self.mark.clone())]),
            workspace: absolute(&self.workspace()),
            hidden: Vec::new(),
            limits: Limits::default(),
            egress: EgressPlan { mode: EgressEnforcementMode::None, hosts: Vec::new() },
            interpreters: Interpreters::Allow,
            containment: Containment::None,
        }
    }

    pub fn shell(&self, script: &str) -> ProcessPlan {
        let mut plan = self.plan("/bin/sh", &["-c", script]);
        plan.env.insert("PATH".to_owned(), SEARCH_PATH.to_owned());
        plan
    }

    pub fn perl(&self, script: &str) -> ProcessPlan {
        self.plan("/usr/bin/perl", &["-e", script])
    }

    pub async fn run(&self, plan: &ProcessPlan) -> Outcome {
        self.try_run(plan).await.unwrap()
    }

    pub async fn try_run(&self, plan: &ProcessPlan) -> Result<Outcome, SandboxProcessRunError> {
        self.try_run_with(plan, RunInput::default()).await
    }

    pub async fn try_run_with(&self, plan: &ProcessPlan, input: RunInput) -> Result<Outcome, SandboxProcessRunError> {
        run_constrained_process(&self.runner, plan, input, drop).await
    }

    pub async fn start(&self, plan: &ProcessPlan) -> RunningProcess {
        self.runner.start(plan, RunInput::default()).await.unwrap()
    }

    /// The processes that carry the mark.
    pub fn processes(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    /// How long it takes until no process carries the mark.
    pub async fn quiet(&self) -> Duration {
        let began = Instant::now();
        while !self.processes().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "still there: {:?}", self.processes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        began.elapsed()
    }
}

/// The processes whose environment has this mark.
pub fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("MARK={mark}");
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    })
    .collect()
}

pub fn absolute(path: &Path) -> AbsolutePath {
    AbsolutePath::parse(path.to_str().unwrap()).unwrap()
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Reads output until it contains `wanted`.
pub async fn wait_for(running: &mut RunningProcess, wanted: &str) -> String {
    let mut seen = Vec::new();
    while let Some(chunk) = running.next_output().await {
        seen.extend_from_slice(&chunk.bytes);
        if String::from_utf8_lossy(&seen).contains(wanted) {
            return String::from_utf8(seen).unwrap();
        }
    }
    panic!("ended without `{wanted}`: {:?}", String::from_utf8_lossy(&seen));
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The processes that wait to become the next tool of this test, asleep until it is dropped.
pub struct Held(Vec<Pid>);

impl Held {
    /// Sends the processes to sleep that wait for the next orders, as soon as all are there.
    pub async fn the_next_tools() -> Self {
        let held = next_tools().await;
        held.iter().for_each(|&process| rustix::process::kill_process(process, Signal::STOP).unwrap());
        Self(held)
    }
}

impl Held {
    /// Waits until one is no more: the one that had an order. It sleeps, so somebody has to end it.
    pub async fn one_is_gone(&self) {
        within_reason(|| self.0.iter().any(|&process| rustix::process::test_kill_process(process).is_err())).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for process in &self.0 {
            let _ = rustix::process::kill_process(*process, Signal::CONT);
        }
    }
}

/// The processes that wait for the next orders, as soon as all are there.
pub async fn next_tools() -> Vec<Pid> {
    let mut tools = Vec::new();
    within_reason(|| {
        // Those of an earlier call or test may still be about to end, and new ones have neither their name yet nor gone to sleep.
        let inits = children_of(&[std::process::id()]);
        let waiting = children_of(&pids(&inits));
        tools = pids(&waiting);
        let all = || inits.iter().chain(&waiting).all(|stat| stat.contains("(palyra-init) S "));
        (inits.len(), waiting.len()) == (WAITING, WAITING) && all()
    })
    .await;
    tools.iter().map(|&id| Pid::from_raw(i32::try_from(id).unwrap()).unwrap()).collect()
}

async fn within_reason(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        let family = || children_of(&pids(&children_of(&[std::process::id()])));
        let own = || children_of(&[std::process::id()]);
        assert!(began.elapsed() < Duration::from_secs(20), "that does not come about: {:?} {:?}", own(), family());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Whether this process has children, dead or alive.
pub fn has_children() -> bool {
    let left = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::All, left), Err(rustix::io::Errno::CHILD))
}

/// The children of these processes that have not ended, as the kernel describes them.
fn children_of(parents: &[u32]) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let is_child = |stat: &String| {
        let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ');
        let (state, parent) = (fields.next().unwrap(), fields.next().unwrap());
        state != "Z" && parents.iter().any(|of| of.to_string() == parent)
    };
    stats.filter(is_child).collect()
}

fn pids(stats: &[String]) -> Vec<u32> {
    stats.iter().map(|stat| stat.split_once(' ').unwrap().0.parse().unwrap()).collect()
}

/// What a program prints that the kernel starts by its path; nothing if it does not start it.
#[expect(clippy::disallowed_methods, reason = "the kernel's own way is what ours is compared with")]
pub fn output_of(program: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).env_clear().output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Writes what is in one file into another, which stays the same file. Nobody has it open for writing afterwards.
#[expect(clippy::disallowed_methods, reason = "a test prepares a program")]
pub fn overwrite(file: &Path, with: &Path) {
    let (from, to) = (format!("if={}", with.display()), format!("of={}", file.display()));
    assert!(Command::new("dd").args([from, to]).arg("status=none").status().unwrap().success());
}

/// A copy of a file, beside it.
pub fn copy_beside(file: &Path) -> PathBuf {
    let path = file.with_extension("copy");
    copy(file, &path);
    path
}

/// Copies a program in a process of its own. A descriptor that writes to it, even for a moment, would be inherited by whatever
/// another test starts meanwhile, and nobody can execute a file that is open for writing.
#[expect(clippy::disallowed_methods, reason = "a test prepares a program")]
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// Runs all tests of the calling module once more, as a user without privileges. A run that is such a user's already needs no other one.
#[expect(clippy::disallowed_methods, reason = "a test starts itself as another user")]
pub fn again_as_an_ordinary_user(module: &str) {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("tests");
    copy(&std::env::current_exe().unwrap(), &program);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=200007", "--regid=200007", "--clear-groups"]).arg(program);
    // Test names leave out the crate, which every path of a module begins with.
    let (_, module) = module.split_once("::").unwrap();
    command.args(["--test-threads=2", &format!("{module}::"), "--skip", &format!("{module}::all_of_this_holds_")]);
    command.env("TMPDIR", "/tmp").current_dir("/");
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(!out.contains("running 0 tests"), "{out}");
}

/// The children of this test above these processes.
pub fn children_above(processes: &[u32]) -> Vec<Pid> {
    let own = std::process::id();
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let mut found = BTreeSet::new();
    for &process in processes {
        let mut here = process;
        while let Some(above) = parent(here).filter(|&above| above > 0) {
            if above == own {
                found.insert(here);
                break;
            }
            here = above;
        }
    }
    found.into_iter().map(|id| Pid::from_raw(i32::try_from(id).unwrap()).unwrap()).collect()
}
