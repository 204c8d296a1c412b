//! Output is kept exactly, up to a limit, and a flood of it neither blocks the program nor fills the memory.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{fs, time::Duration};

use palyra_sandbox::{Ended, OutputChunk, OutputStream, RunInput, StopCause, run_constrained_process};

use crate::lab::{self, Lab, text};

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_flood_is_counted_and_only_its_beginning_is_kept() {
    let lab = Lab::new();
    let before = peak_memory_kb();
    let outcome = lab.run(&lab.shell("head -c 200000000 /dev/zero; echo done >&2; exit 5")).await;
    assert_eq!((outcome.ended, text(&outcome.stderr.bytes)), (Ended::Exited(5), "done\n"));
    assert_eq!((outcome.stdout.total, outcome.stdout.bytes.len()), (200_000_000, 1 << 20));
    assert!(outcome.stdout.truncated() && !outcome.stderr.truncated());
    assert!(peak_memory_kb() - before < 64 << 10, "{} kB more", peak_memory_kb() - before);
}

#[tokio::test]
async fn a_flood_on_both_streams_does_not_delay_the_stop() {
    let lab = Lab::new();
    let mut plan = lab.shell("yes out & yes err >&2");
    plan.limits.wall_ms = 300;
    let outcome = lab.run(&plan).await;
    assert_eq!(outcome.ended, Ended::WallClock);
    assert!(outcome.stdout.total > 1 << 20 && outcome.stderr.total > 1 << 20, "{:?}", outcome.stderr.total);
    assert!(outcome.usage.wall < Duration::from_secs(2), "{:?}", outcome.usage.wall);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_as_they_are() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.shell(r"printf '\377\000\303(\r\n'; printf '\000' >&2")).await;
    assert_eq!(outcome.stdout.bytes, b"\xff\0\xc3(\r\n");
    assert_eq!(outcome.stderr.bytes, b"\0");
}

#[tokio::test]
async fn output_comes_while_the_program_still_runs() {
    let lab = Lab::new();
    let mut running = lab.start(&lab.shell("echo first; echo second >&2; sleep 60")).await;
    let (one, other) = (running.next_output().await.unwrap(), running.next_output().await.unwrap());
    let chunk = |stream, bytes: &[u8]| OutputChunk { stream, offset: 0, bytes: bytes.to_vec() };
    // The two streams have no order between them.
    let chunks = if one.stream == OutputStream::Stdout { [one, other] } else { [other, one] };
    assert_eq!(chunks, [chunk(OutputStream::Stdout, b"first\n"), chunk(OutputStream::Stderr, b"second\n")]);
    running.stop(StopCause::Requested);
    assert_eq!(running.next_output().await, None);
    assert_eq!(running.outcome().await.ended, Ended::Cancelled(StopCause::Requested));
}

#[tokio::test]
async fn the_live_stream_is_what_is_kept() {
    let lab = Lab::new();
    let mut plan = lab.shell("for i in 1 2 3 4 5; do echo line $i; sleep 0.02; done");
    plan.limits.output_bytes = 20;
    let mut live = Vec::new();
    let sink = |chunk: OutputChunk| live.extend_from_slice(&chunk.bytes);
    let outcome = run_constrained_process(&lab.runner, &plan, RunInput::default(), sink).await.unwrap();
    assert_eq!(text(&live), "line 1\nline 2\nline 3");
    assert_eq!((outcome.stdout.bytes, outcome.stdout.total), (live, 35));
}

#[tokio::test]
async fn a_reader_that_sleeps_misses_pieces_and_the_outcome_none() {
    let lab = Lab::new();
    let mut plan = lab.shell("head -c 20000000 /dev/zero");
    plan.limits.output_bytes = 32 << 20;
    let mut running = lab.start(&plan).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut live, mut missed, mut end) = (0, 0, 0);
    while let Some(chunk) = running.next_output().await {
        missed += chunk.offset - end;
        live += chunk.bytes.len() as u64;
        end = chunk.offset + chunk.bytes.len() as u64;
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let outcome = running.outcome().await;
    assert_eq!((outcome.ended, outcome.stdout.bytes.len()), (Ended::Exited(0), 20_000_000));
    assert!(outcome.stdout.not_streamed > 0, "all of it was streamed");
    assert_eq!(live + outcome.stdout.not_streamed, 20_000_000);
    assert_eq!(missed + (20_000_000 - end), outcome.stdout.not_streamed, "a gap is not where the offsets say");
}

#[tokio::test]
async fn output_of_a_program_that_ends_at_once_is_complete() {
    let lab = Lab::new();
    for _ in 0..50 {
        let outcome = lab.run(&lab.shell("head -c 50000 /dev/zero; head -c 30000 /dev/zero >&2")).await;
        assert_eq!((outcome.stdout.total, outcome.stderr.total), (50_000, 30_000));
    }
}

#[tokio::test]
async fn the_streams_can_be_opened_again_by_name() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.shell("echo a >/dev/stdout; echo b >/dev/stderr")).await;
    assert_eq!((text(&outcome.stdout.bytes), text(&outcome.stderr.bytes)), ("a\n", "b\n"));
}

fn peak_memory_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
