//! What tier C costs: `true` in an enclosure next to bare bubblewrap with the same mounts, cold and warm; five hundred calls at once, and what
//! is left of them. A missed target ends the program with an error.
//!
//! The journal lies in memory, so its syncs cost nothing; what a call costs with a journal on the disk is told beside it.

#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a measurement that cannot be set up ends, and its floor is a bare process"
)]

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use palyra_benches::{
    judge, median, millis,
    place::{Place, PlacePlan, directory},
    time,
};
use palyra_gate::ToolProposal;
use serde_json::json;

const ROUNDS: usize = 150;
const AT_ONCE: u64 = 500;

fn main() -> std::process::ExitCode {
    let before = Leftovers::now();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let disk = directory();
    let memory = tempfile::Builder::new().prefix("palyra-bench").tempdir_in("/dev/shm").expect("a directory");
    let bare = BareBubblewrap::new(disk.path());
    let place = |name: &str, journal: Option<PathBuf>, warm: &str| {
        runtime.block_on(open(&disk.path().join(name), journal.as_deref(), warm))
    };
    let cold = place("cold", Some(memory.path().join("cold")), "each = 0");
    let warm = place("warm", Some(memory.path().join("warm")), "each = 2");
    let durable = place("durable", None, "each = 2");

    let mut parts: [Vec<Duration>; 6] = Default::default();
    for _ in 0..ROUNDS {
        let [spawn, bubblewrap, colds, warms, sandbox, durables] = &mut parts;
        pause();
        spawn.push(time(|| Command::new("/usr/bin/true").env_clear().status().expect("it runs")));
        pause();
        bubblewrap.push(time(|| bare.run()));
        pause();
        colds.push(runtime.block_on(timed(&cold)).0);
        pause();
        let (whole, ran) = runtime.block_on(timed(&warm));
        warms.push(whole);
        sandbox.push(ran);
        pause();
        durables.push(runtime.block_on(timed(&durable)).0);
    }
    let [spawn, bubblewrap, colds, warms, sandbox, durables] = parts.map(median);
    let ratio = |of: Duration| of.as_secs_f64() / bubblewrap.as_secs_f64();
    println!("spawn of `true`                                {:>8.2} ms", millis(spawn));
    println!("bare bubblewrap, same mounts                   {:>8.2} ms", millis(bubblewrap));
    println!("tier c through the gate, cold                  {:>8.2} ms   {:.2} times", millis(colds), ratio(colds));
    println!("tier c through the gate, warm                  {:>8.2} ms   {:.2} times", millis(warms), ratio(warms));
    println!(
        "  of that: the sandbox                         {:>8.2} ms   {:.2} times",
        millis(sandbox),
        ratio(sandbox)
    );
    println!(
        "  the same with the journal on the disk        {:>8.2} ms   {:.2} times",
        millis(durables),
        ratio(durables)
    );

    let begun = Instant::now();
    let done = runtime.block_on(async {
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (gate, proposal) = (warm.opened.gate.clone(), nothing(&warm));
                tokio::spawn(async move { gate.run(proposal).await })
            })
            .collect();
        let mut done = 0_u64;
        for call in calls {
            done += u64::from(call.await.is_ok_and(|ran| ran.is_ok()));
        }
        done
    });
    let took = begun.elapsed();
    drop((cold, warm, durable));
    runtime.shutdown_timeout(Duration::from_secs(5));
    let after = Leftovers::settled(&before);
    println!(
        "{done} of {AT_ONCE} calls at once in {:.2} s, {:.2} ms each; resident at most {} MB",
        took.as_secs_f64(),
        millis(took) / AT_ONCE as f64,
        peak() / 1024
    );
    println!("left behind: {after:?}; before: {before:?}");

    judge(&[
        ("cold tier C is at most 1.5 times bare bubblewrap", ratio(colds) <= 1.5),
        ("warm tier C is at most 0.45 times bare bubblewrap", ratio(warms) <= 0.45),
        ("500 calls at once all end", done == AT_ONCE),
        ("nothing is left of them", after == before),
        ("memory stays below 256 MB", peak() < 256 << 10),
    ])
}

/// As in life, some time passes before anything is measured, whatever it is: processors rest, and the next enclosure is made.
fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

/// The floor: bubblewrap itself, under an ordinary user, with the mounts of an enclosure and nothing of what Palyra adds.
struct BareBubblewrap {
    args: Vec<String>,
}

impl BareBubblewrap {
    fn new(directory: &Path) -> Self {
        let (etc, workspace) = (directory.join("bare/etc"), directory.join("bare/workspace"));
        fs::create_dir_all(&etc).expect("a directory");
        fs::create_dir_all(&workspace).expect("a directory");
        let mut args: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
        add(&[
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--unshare-net",
        ]);
        add(&["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]);
        for name in ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
            let path = format!("/{name}");
            match fs::read_link(&path) {
                Ok(target) => add(&["--symlink", &target.to_string_lossy(), &path]),
                Err(_) if Path::new(&path).exists() => add(&["--ro-bind", &path, &path]),
                Err(_) => {}
            }
        }
        add(&["--proc", "/proc", "--dir", "/dev"]);
        for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"] {
            add(&["--dev-bind", device, device]);
        }
        add(&["--size", "1073741824", "--tmpfs", "/dev/shm", "--size", "1073741824", "--tmpfs", "/tmp"]);
        if Path::new("/opt").is_dir() {
            add(&["--ro-bind", "/opt", "/opt"]);
        }
        // Where an ordinary user can reach them.
        let (etc, workspace) = (reachable(&etc), reachable(&workspace));
        add(&["--ro-bind", &etc, "/etc", "--bind", &workspace, "/workspace", "--remount-ro", "/"]);
        add(&["--as-pid-1", "--", "/usr/bin/true"]);
        Self { args }
    }

    fn run(&self) {
        let mut command = Command::new("bwrap");
        command.env_clear().env("PATH", "/usr/bin:/bin").args(&self.args);
        if rustix::process::geteuid().is_root() {
            command.uid(1_900_009_999).gid(1_900_009_999);
        }
        assert!(command.status().expect("it runs").success());
    }
}

/// A directory that everybody can reach, in the place of one that root keeps for itself.
fn reachable(directory: &Path) -> String {
    if !rustix::process::geteuid().is_root() {
        return directory.to_string_lossy().into_owned();
    }
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let open = tempfile::Builder::new().prefix("palyra-bench-").suffix(&name).tempdir().expect("a directory").keep();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&open, everybody).expect("it is mine");
    open.to_string_lossy().into_owned()
}

/// A place in which programs run in tier C.
async fn open(directory: &Path, journal: Option<&Path>, warm: &str) -> Place {
    let config = format!(
        "[calls]\nmost_running = 64\nmost_running_of_one = 64\n[sandbox]\nplans = [{{ tier = \"c\", egress = \"strict\" }}]\n[sandbox.warm]\n{warm}"
    );
    Place::open(PlacePlan { directory, journal, config: &config, net: None }).await
}

fn nothing(place: &Place) -> ToolProposal {
    place.proposal("process.run", json!({ "command": ["true"] }))
}

/// How long a call takes, and how long of that it runs.
async fn timed(place: &Place) -> (Duration, Duration) {
    let (gate, proposal) = (place.opened.gate.clone(), nothing(place));
    // On a thread of the runtime, where a daemon has its handlers.
    let timed = tokio::spawn(async move {
        let begun = Instant::now();
        let done = gate.run(proposal).await.expect("it runs");
        let took = begun.elapsed();
        assert_eq!(done.receipt.attestation.executor, "sandbox_tier_c_linux_bubblewrap");
        (took, Duration::from_micros(done.receipt.attestation.times.ran_us))
    });
    timed.await.expect("it measures")
}

/// What calls could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Leftovers {
    processes: usize,
    mounts: usize,
    networks: usize,
    cgroups: usize,
}

impl Leftovers {
    fn now() -> Self {
        let lines = |path: &str| fs::read_to_string(path).map(|text| text.lines().count()).unwrap_or(0);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbered =
            entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
        let (mut processes, mut networks) = (0, std::collections::BTreeSet::new());
        for entry in numbered {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            processes += usize::from(["bwrap", "palyra-init"].contains(&name.trim()));
            networks.extend(fs::read_link(entry.path().join("ns/net")).ok());
        }
        let groups = |controller: &str| {
            let path = PathBuf::from("/sys/fs/cgroup").join(controller);
            count_below(&path, 4)
        };
        let cgroups = ["memory", "pids", "cpu", ""].into_iter().map(groups).sum();
        Self { processes, mounts: lines("/proc/self/mountinfo"), networks: networks.len(), cgroups }
    }

    fn settled(before: &Self) -> Self {
        for _ in 0..200 {
            if Self::now() == *before {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Self::now()
    }
}

/// The cgroups of enclosures below a directory.
fn count_below(directory: &Path, levels: u32) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found += usize::from(entry.file_name().to_str().is_some_and(|name| name.starts_with("enclosure-")));
            if levels > 0 {
                found += count_below(&entry.path(), levels - 1);
            }
        }
    }
    found
}

/// The largest resident set of this process, in kilobytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(u64::MAX)
}
