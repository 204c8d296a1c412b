//! Programs that somebody speaks with over their standard streams for as long as they run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and looks at the machine with its own programs"
)]

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use palyra_sandbox::{
    Ended, Layer, ProcessPlan, ProgramEnds, RunInput, RunningProcess, SandboxProcessRunErrorKind as Kind, StopCause,
    Streams,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::unix::pipe,
};

use crate::lab::{self, Lab, text};

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

/// A program that runs, and our ends of its pipes.
struct Spoken {
    input: pipe::Sender,
    output: BufReader<pipe::Receiver>,
    process: RunningProcess,
}

impl Spoken {
    async fn start(lab: &Lab, plan: ProcessPlan) -> Self {
        let mut plan = lab.enclose(plan);
        plan.limits.wall_ms = u64::MAX;
        plan.limits.cpu_seconds = u64::MAX;
        plan.limits.output_bytes = KEPT;
        let (ends, input, output) = ProgramEnds::connect().unwrap();
        let input_of = RunInput { streams: Streams::Connected(ends), ..RunInput::default() };
        let process = lab.runner.start(&plan, input_of).await.unwrap();
        Self { input, output: BufReader::new(output), process }
    }

    /// The answer to a line.
    async fn ask(&mut self, line: &str) -> String {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        self.hear().await
    }

    async fn hear(&mut self) -> String {
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(20), self.output.read_line(&mut answer)).await.unwrap().unwrap();
        answer
    }
}

const KEPT: u64 = 4096;

/// Answers each line with its number, the line, and 2 500 letters.
const ECHO: &str = "$| = 1; while (<STDIN>) { chomp; print $., ' ', $_, ' ', 'x' x 2500, \"\\n\" }";

#[tokio::test]
async fn a_program_answers_as_often_as_it_is_asked_and_no_bound_counts_what_passes() {
    let lab = Lab::enclosed();
    let mut spoken = Spoken::start(&lab, lab.perl(ECHO)).await;
    let mut heard = 0;
    for number in 1..=5_000 {
        let answer = spoken.ask("hello").await;
        assert!(answer.starts_with(&format!("{number} hello x")), "{answer}");
        heard += answer.len();
    }
    assert!(heard > 10_000_000, "{heard}");
    // Its input ends, and so does it.
    let Spoken { input, mut output, process } = spoken;
    drop(input);
    let outcome = process.outcome().await;
    assert_eq!((outcome.ended, outcome.stdout.total), (Ended::Exited(0), 0));
    assert_eq!(output.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn more_than_a_pipe_holds_waits_for_its_reader_and_comes_whole() {
    let lab = Lab::enclosed();
    let Spoken { input, mut output, process } =
        Spoken::start(&lab, lab.shell("head -c 20000000 /dev/zero; echo done >&2")).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut read = Vec::new();
    output.read_to_end(&mut read).await.unwrap();
    drop(input);
    let outcome = process.outcome().await;
    assert_eq!((outcome.ended, read.len()), (Ended::Exited(0), 20_000_000));
    assert_eq!(text(&outcome.stderr.bytes), "done\n");
}

#[tokio::test]
async fn of_standard_error_the_end_is_kept() {
    let lab = Lab::enclosed();
    let spoken = Spoken::start(&lab, lab.shell("seq 1 100000 >&2; echo the last words >&2; exit 3")).await;
    let outcome = spoken.process.outcome().await;
    assert_eq!(outcome.ended, Ended::Exited(3));
    let all: String =
        (1..=100_000).map(|number| format!("{number}\n")).chain(["the last words\n".to_owned()]).collect();
    let kept = usize::try_from(KEPT).unwrap();
    assert_eq!(outcome.stderr.total, u64::try_from(all.len()).unwrap());
    assert_eq!(outcome.stderr.bytes, all.as_bytes()[all.len() - kept..]);
    assert!(outcome.stderr.truncated());
}

#[tokio::test]
async fn what_holds_it_is_known_while_it_runs() {
    let lab = Lab::enclosed();
    let mut spoken = Spoken::start(&lab, lab.perl(ECHO)).await;
    spoken.ask("there").await;
    let known: Vec<Layer> = spoken.process.layers().to_vec();
    spoken.process.stop(StopCause::Requested);
    let outcome = spoken.process.outcome().await;
    assert_eq!(known, outcome.layers);
    for wanted in [Layer::NoCapabilities, Layer::NoNewPrivs, Layer::Rlimits, Layer::ClosedFds, Layer::NamespaceKill] {
        assert!(known.contains(&wanted), "{wanted}: {known:?}");
    }
    assert!(known.iter().any(|layer| matches!(layer, Layer::ListedPaths { .. })), "{known:?}");
}

#[tokio::test]
async fn it_sees_neither_the_machine_nor_its_processes_nor_a_network() {
    let lab = Lab::enclosed();
    std::fs::write(lab.outside().join("secret"), "nobody's business").unwrap();
    let script = "while read line; do eval \"$line\" 2>&1 | tr '\\n' ' '; echo; done";
    let mut spoken = Spoken::start(&lab, lab.shell(script)).await;
    let secret = lab.outside().join("secret");
    assert!(spoken.ask(&format!("cat {}", secret.display())).await.contains("No such file"));
    let processes = spoken.ask("ls /proc | grep -c '^[0-9]'").await;
    assert!(processes.trim().parse::<u32>().unwrap() < 10, "{processes}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect =
        format!("/usr/bin/perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(\"127.0.0.1:{port}\") ? 1 : 0'");
    assert_eq!(spoken.ask(&connect).await.trim(), "0");
    // The shell holds ends of a pipe for a moment. What it was started with, it hands on; 3 is the directory that is listed.
    let descriptors = spoken.ask("ls /proc/self/fd").await;
    assert_eq!(descriptors.split_whitespace().collect::<BTreeSet<_>>(), BTreeSet::from(["0", "1", "2", "3"]));
}

#[tokio::test]
async fn stopping_it_ends_the_whole_tree_and_so_does_dropping_it() {
    let lab = Lab::enclosed();
    let script = "trap '' TERM; setsid sleep 600 & (sleep 600 &) ; echo up; while :; do sleep 1; done";
    for drops in [false, true] {
        let mut spoken = Spoken::start(&lab, lab.shell(script)).await;
        assert_eq!(spoken.hear().await, "up\n");
        assert!(!lab.processes().is_empty());
        let began = Instant::now();
        match drops {
            false => {
                spoken.process.stop(StopCause::Requested);
                assert_eq!(spoken.process.outcome().await.ended, Ended::Cancelled(StopCause::Requested));
            }
            true => drop(spoken),
        }
        lab.quiet().await;
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn whoever_speaks_with_it_hears_at_once_that_it_has_gone() {
    let lab = Lab::enclosed();
    let mut spoken = Spoken::start(&lab, lab.shell("read line; exec >&-; read line; exit 4")).await;
    // It has closed its output and runs on.
    assert_eq!(spoken.ask("first").await, "");
    spoken.input.write_all(b"second\n").await.unwrap();
    assert_eq!(spoken.process.outcome().await.ended, Ended::Exited(4));
    assert_eq!(spoken.input.write_all(b"third\n").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn without_an_enclosure_nobody_is_spoken_with() {
    let lab = Lab::enclosed();
    let (ends, _input, _output) = ProgramEnds::connect().unwrap();
    let input = RunInput { streams: Streams::Connected(ends), ..RunInput::default() };
    let refused = lab.runner.start(&lab.shell("cat"), input).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Unavailable, "{refused}");
    assert_eq!(lab.processes(), [0; 0]);
}

#[tokio::test]
async fn a_program_that_does_not_start_is_told_of() {
    let lab = Lab::enclosed();
    let program = lab.executable("broken", "not a program at all\n");
    let (ends, _input, mut output) = ProgramEnds::connect().unwrap();
    let input = RunInput { streams: Streams::Connected(ends), ..RunInput::default() };
    let plan = lab.enclose(lab.plan(program.to_str().unwrap(), &[]));
    let refused = lab.runner.start(&plan, input).await.unwrap_err();
    assert_eq!(refused.kind, Kind::NotExecutable, "{refused}");
    assert_eq!(output.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(lab.processes(), [0; 0]);
}
