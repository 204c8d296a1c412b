//! What a call costs: `true` through the runner next to a bare spawn of it, alternating in one run, with a small and a large heap.
//!
//! `cargo run --release -p palyra-sandbox --example spawn_cost [rounds]`

#![expect(clippy::disallowed_methods, reason = "the bare spawn is what the runner is measured against")]

use std::{
    collections::BTreeMap,
    error::Error,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use palyra_sandbox::{
    Containment, EgressPlan, Ended, Interpreters, Limits, ProcessPlan, RunInput, SandboxProcessRunner,
    run_constrained_process,
};
use palyra_types::{path::AbsolutePath, sandbox::EgressEnforcementMode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(300), |rounds| rounds.parse())?;
    let began = Instant::now();
    let runner = SandboxProcessRunner::new([])?;
    println!("runner ready in {:.2} ms, layers {}", millis(began.elapsed()), names(&runner));
    let home = tempfile::tempdir_in("/var/tmp")?;
    let hidden = AbsolutePath::parse(home.path().to_str().ok_or("the path is not Unicode")?)?;
    for megabytes in [0, 500] {
        let heap = vec![1_u8; megabytes << 20];
        for pause in [Duration::ZERO, Duration::from_millis(5)] {
            println!("heap {} MB, {rounds} rounds, {} ms apart, milliseconds", heap.len() >> 20, pause.as_millis());
            compare(&runner, rounds, &hidden, pause).await?;
        }
    }
    Ok(())
}

async fn compare(
    runner: &SandboxProcessRunner,
    rounds: usize,
    hidden: &AbsolutePath,
    pause: Duration,
) -> Result<(), Box<dyn Error>> {
    let plain = plan(Vec::new())?;
    let hiding = plan(vec![hidden.clone()])?;
    let (mut bare, mut ours, mut with_hidden) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        std::thread::sleep(pause);
        let began = Instant::now();
        Command::new("/bin/true").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        bare.push(began.elapsed());
        for (plan, times) in [(&plain, &mut ours), (&hiding, &mut with_hidden)] {
            tokio::time::sleep(pause).await;
            let began = Instant::now();
            let outcome = run_constrained_process(runner, plan, RunInput::default(), drop).await?;
            times.push(began.elapsed());
            if outcome.ended != Ended::Exited(0) {
                return Err(format!("{:?}", outcome.ended).into());
            }
        }
    }
    for (name, times) in [("bare spawn", bare), ("tier B", ours), ("tier B, a directory hidden", with_hidden)] {
        let (p50, p99) = percentiles(times);
        println!("  {name:28} p50 {:.2}  p99 {:.2}", millis(p50), millis(p99));
    }
    Ok(())
}

fn plan(hidden: Vec<AbsolutePath>) -> Result<ProcessPlan, Box<dyn Error>> {
    Ok(ProcessPlan {
        program: AbsolutePath::parse("/bin/true")?,
        argv0: None,
        args: Vec::new(),
        cwd: AbsolutePath::parse("/tmp")?,
        env: BTreeMap::new(),
        workspace: AbsolutePath::parse("/tmp")?,
        hidden,
        limits: Limits::default(),
        egress: EgressPlan { mode: EgressEnforcementMode::None, hosts: Vec::new() },
        interpreters: Interpreters::Refuse,
        containment: Containment::None,
    })
}

fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn names(runner: &SandboxProcessRunner) -> String {
    runner.layers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
