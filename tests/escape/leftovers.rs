//! What is left after calls: nothing, however they end, and nothing that another call could see.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use palyra_tests::daemon::{accepted, over};
use palyra_types::id::CallId;

use crate::escape::{
    bench::{Bench, Identity, plan},
    host::{self, Process},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_leaves_nothing_of_a_call() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some((mut bench, _)) = with_a_call_that_forks(identity).await else { continue };
        let daemon = bench.lab.pid();
        bench.lab.kill();
        gone(&bench, "the daemon was killed");
        // Nobody was left to remove the cgroups, which are empty. The next daemon does.
        bench.lab.start();
        assert_eq!(host::cgroups(daemon), Vec::<std::path::PathBuf>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_bubblewrap_ends_the_whole_call() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some((bench, call)) = with_a_call_that_forks(identity).await else { continue };
        kill(bubblewrap(&bench).pid);
        gone(&bench, "bubblewrap was killed");
        crashed(&bench, call).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_init_ends_the_whole_call() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some((bench, call)) = with_a_call_that_forks(identity).await else { continue };
        let above = bubblewrap(&bench).pid;
        let init = host::enclosed(bench.root()).into_iter().find(|process| process.parent == above).unwrap();
        kill(init.pid);
        gone(&bench, "the init was killed");
        crashed(&bench, call).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_calls_leave_no_process_mount_network_or_cgroup() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(mut bench) = Bench::new(identity) else { continue };
        let before = bench.host();
        for _ in 0..3 {
            bench.attack(&["leave-behind", "2"]).await;
        }
        let counted = settled(&bench).await;
        for _ in 0..100 {
            bench.attack(&["leave-behind", "2"]).await;
        }
        let left = settled(&bench).await;
        println!("{identity:?}: {counted:?} before, {left:?} after: those that wait");
        assert_eq!(left, counted);
        assert_eq!(host::marked(&bench.mark), Vec::<u32>::new());
        let daemon = bench.lab.pid();
        assert!(bench.lab.stop().success());
        gone(&bench, "the daemon was stopped");
        // A daemon that stops does not wait for those to be empty that it has ended. The next one removes them.
        for cgroup in host::cgroups(daemon) {
            assert_eq!(std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap(), "");
        }
        bench.lab.start();
        assert_eq!(host::cgroups(daemon), Vec::<std::path::PathBuf>::new());
        assert_eq!(bench.host().changes(&before), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_see_nothing_of_each_other() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(bench) = Bench::new(identity) else { continue };
        let (agent, owner) = (bench.lab.agent(), bench.lab.owner());
        // Of the same principal first, then of another.
        for (first, second) in [(&agent, &agent), (&agent, &owner), (&owner, &agent)] {
            let leave = "echo x > /tmp/left && echo x > /dev/shm/left && echo x > $HOME/left && ./attacks shared-memory 4711 make \
                         && ./attacks leave-behind 2";
            let ran = bench.run(first, &["/bin/sh", "-c", leave]).await;
            assert_eq!(ran.line, "LEFT", "{}", ran.stderr);
            let look = "cat /tmp/left /dev/shm/left $HOME/left 2>/dev/null; ./attacks shared-memory 4711; set -- /proc/[0-9]*; echo $#; \
                        ls /proc/*/root 2>/dev/null | grep -c left; env | grep -c LEFT";
            let ran = bench.run(second, &["/bin/sh", "-c", look]).await;
            let Some(palyra_api::call::Output::Process { stdout, .. }) = &ran.call.output else { panic!("{ran:?}") };
            // The init and the shell, which looks itself: other programs may be there by then or not.
            assert_eq!(stdout.data, "REFUSED ENOENT\n2\n0\n0\n", "{identity:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_the_processors_from_its_init_still_ends_in_time() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(bench) = Bench::new(identity) else { continue };
        let mut call = bench.call(&["./attacks", "starve-init", "48"].map(str::to_owned));
        call.args.insert("timeout_seconds".to_owned(), 2.into());
        let begun = Instant::now();
        let ended = bench.lab.agent().propose(&call, None).await.unwrap();
        println!("{identity:?}: it ended after {:?}", begun.elapsed());
        assert_eq!(ended.receipt.as_ref().map(|receipt| receipt.ending()), Some("timed_out"), "{ended:?}");
        assert!(begun.elapsed() < Duration::from_secs(6), "it took {:?}", begun.elapsed());
        assert_eq!(host::marked(&bench.mark), Vec::<u32>::new());
    }
}

/// Without a cgroup nothing bounds this, which is why the daemon says where there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_no_process_maps_is_bounded_by_the_cgroup() {
    let Some(bench) = Bench::new(Identity::Root) else { return };
    bench.attack(&["descriptors"]).await;
    if host::cgroups(bench.lab.pid())
        .iter()
        .any(|path| path.join("memory.limit_in_bytes").exists() || path.join("memory.max").exists())
    {
        // The kernel looks for the process with the most memory, and none has it: the init may be the one that is ended, and all with it.
        let ran = bench.attack(&["file-bomb", "512"]).await;
        let ending = ran.call.receipt.as_ref().map(|receipt| receipt.ending().to_owned());
        println!("{:?}: {ending:?}", ran.told());
        assert!(ran.told() == " signal 9" || ending.as_deref() == Some("crashed"), "{ran:?}");
        assert_eq!(host::marked(&bench.mark), Vec::<u32>::new());
        assert_eq!(bench.attack(&["descriptors"]).await.line, "REFUSED 0 1 2");
    }
}

/// While a call runs whose processes have left each other.
async fn with_a_call_that_forks(identity: Identity) -> Option<(Bench, CallId)> {
    let bench = Bench::with(identity, plan().config("[sandbox.warm]\neach = 0"))?;
    let argv = ["./attacks", "leave-behind", "4", "60"].map(str::to_owned);
    let call = bench.lab.agent().propose(&accepted(bench.call(&argv)), None).await.unwrap();
    let begun = Instant::now();
    while host::marked(&bench.mark).len() < 5 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not fork: {}", bench.lab.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Some((bench, call.id))
}

fn bubblewrap(bench: &Bench) -> Process {
    let all = host::enclosed(bench.root());
    let found = all.iter().find(|process| process.command.starts_with("bwrap"));
    found.unwrap_or_else(|| panic!("there is no bubblewrap among {all:?}")).clone()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Within two seconds there is nothing of an enclosure any more.
fn gone(bench: &Bench, after: &str) {
    let begun = Instant::now();
    loop {
        let (left, marked) = (host::enclosed(bench.root()), host::marked(&bench.mark));
        if left.is_empty() && marked.is_empty() {
            println!("{:?}: nothing is left {:?} after {after}", bench.identity, begun.elapsed());
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "left after {after}: {left:?} {marked:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The call is told to have crashed, and the daemon goes on.
async fn crashed(bench: &Bench, call: CallId) {
    let ended = over(&bench.lab.agent(), call).await;
    assert_eq!(ended.receipt.as_ref().map(|receipt| receipt.ending()), Some("crashed"), "{ended:?}");
    assert_eq!(bench.attack(&["descriptors"]).await.line, "REFUSED 0 1 2");
}

/// How many processes, networks and cgroups there are once nothing comes or goes any more.
async fn settled(bench: &Bench) -> (usize, usize, usize) {
    let count = || {
        let processes = host::enclosed(bench.root());
        let networks: BTreeSet<&str> = processes.iter().map(|process| process.network.as_str()).collect();
        (processes.len(), networks.len(), host::cgroups(bench.lab.pid()).len())
    };
    let (begun, mut last, mut since) = (Instant::now(), count(), Instant::now());
    while since.elapsed() < Duration::from_millis(600) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not settle: {last:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}
