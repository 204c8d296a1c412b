//! Tier C: what a program finds inside an enclosure, and what it does not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod lab;

use lab::{Lab, text};
use palyra_sandbox::Ended;

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user("all_of_this_holds_for_an_ordinary_user_too");
}

#[tokio::test]
async fn a_program_runs_in_an_enclosure_and_finds_its_workspace_there() {
    let lab = Lab::enclosed();
    lab.file("note", "hello\n");
    let script = "cat note; echo made > made; pwd; id -u; ls /; echo $HOME; cat /proc/self/status | grep -E '^(Cap|NoNewPrivs|Seccomp:)'; ls /proc | grep -c '^[0-9]'";
    let outcome = lab.run(&lab.enclose(lab.shell(script))).await;
    println!("{}\n{}\n{:?}", text(&outcome.stdout.bytes), text(&outcome.stderr.bytes), outcome);
    assert_eq!(outcome.ended, Ended::Exited(0));
}
